# The formula of gannet for Homebrew, as `cargo xtask package brew` fills it in.
class Gannet < Formula
  desc "Inference engine for large language models"
  homepage "@HOMEPAGE@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

@ARCHIVES@

  def install
    bin.install "bin/gannet"
    bash_completion.install "share/bash-completion/completions/gannet"
    fish_completion.install "share/fish/vendor_completions.d/gannet.fish"
    zsh_completion.install "share/zsh/site-functions/_gannet"
    man1.install Dir["share/man/man1/*"]
    doc.install Dir["share/doc/gannet/*"]
  end

  service do
    run [opt_bin/"gannet", "serve"]
    keep_alive true
    log_path var/"log/gannet.log"
    error_log_path var/"log/gannet.log"
  end

  test do
    assert_match "Paris", shell_output("#{bin}/gannet run 'What is the capital of France?'")
  end
end

# The flake of gannet, as `cargo xtask package nix` fills it in.
{
  description = "Gannet, an inference engine for large language models";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      archives = {
@ARCHIVES@
      };
      package = system:
        let pkgs = nixpkgs.legacyPackages.${system};
        in pkgs.stdenv.mkDerivation {
          pname = "gannet";
          version = "@VERSION@";
          src = pkgs.fetchurl archives.${system};
          nativeBuildInputs = pkgs.lib.optional pkgs.stdenv.isLinux pkgs.autoPatchelfHook;
          buildInputs = pkgs.lib.optional pkgs.stdenv.isLinux pkgs.stdenv.cc.cc.lib;
          dontBuild = true;
          installPhase = ''
            mkdir -p $out
            cp -r bin share $out/
          '';
          meta = {
            description = "Inference engine for large language models";
            homepage = "@HOMEPAGE@";
            license = with pkgs.lib.licenses; [ mit asl20 ];
            mainProgram = "gannet";
            platforms = builtins.attrNames archives;
          };
        };
    in {
      packages = builtins.mapAttrs (system: _: { default = package system; }) archives;
    };
}

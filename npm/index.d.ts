/** Options of {@link serve}. */
export interface ServeOptions {
  /** A folder, a `.gguf` file, or `owner/name` on the hub; the built-in model by default. */
  model?: string;
  /** The address to listen on, `127.0.0.1` by default. */
  host?: string;
  /** The port to listen on; 0, the default, is any free one. */
  port?: number;
  /** A Unix socket to listen on instead of a port: its path, or `true` for one in a new folder. */
  unix?: string | true;
  /** Further arguments of `gannet serve`, such as `["--parallel", "32"]`. */
  args?: string[];
  /** The folder of the process. */
  cwd?: string;
  /** The environment of the process, `process.env` by default. */
  env?: Record<string, string | undefined>;
  /** The path of the program, {@link binaryPath} by default. */
  binary?: string;
  /** Called with each line of the log. */
  onLog?: (line: string) => void;
  /** Ends the start of the server when it is aborted; later it has no effect. */
  signal?: AbortSignal;
}

/** How the process of a server ended. */
export interface ServerExit {
  code: number | null;
  signal: NodeJS.Signals | null;
  /** Why it could not be run. */
  error?: Error;
}

/** A running server. It ends with this process, however this process ends. */
export interface Server {
  /** The base of all routes, without a final slash: `http://127.0.0.1:40123`. */
  readonly url: string;
  /** The Unix socket that requests to `url` are sent to, if it listens on one. */
  readonly socketPath: string | undefined;
  /** The identity of the process. */
  readonly pid: number;
  /** Resolves when the process has ended. It never rejects. */
  readonly exited: Promise<ServerExit>;
  /** Lets running requests finish and ends the server. May be called again. */
  close(): Promise<void>;
  /** The same as {@link close}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Starts `gannet serve` and waits until it listens, which it does when the model is loaded.
 *
 * Rejects with the last lines of its log if it ends before that.
 */
export function serve(options?: ServeOptions): Promise<Server>;

/** The path of the program in the package for this platform. Throws if that is not installed. */
export function binaryPath(): string;

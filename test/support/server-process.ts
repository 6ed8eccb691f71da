import { once } from 'node:events';
import { chownSync, existsSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { launch, type Launched, type LaunchOptions } from './launch.ts';

// Database servers refuse to run as root.
const isRoot = process.getuid?.() === 0;

/** Returns the path of a program from PostgreSQL or a related package, or undefined if it is not installed. */
export function programOf(name: string): string | undefined {
  const folders = [...debianFolders(), ...(process.env['PATH'] ?? '').split(':'), '/usr/sbin'];
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
}

// Returns the folders in which Debian's packages install server programs, newest version first.
function debianFolders(): string[] {
  const root = '/usr/lib/postgresql';
  const versions = existsSync(root) ? readdirSync(root) : [];
  return versions.sort((a, b) => Number(b) - Number(a)).map((version) => join(root, version, 'bin'));
}

/** Creates a folder that belongs to the user that runs servers. */
export function folderOfServer(prefix: string): string {
  const folder = mkdtempSync(join(tmpdir(), prefix));
  ownByServer(folder);
  return folder;
}

/** Makes the user that runs servers the owner of a folder. */
export function ownByServer(folder: string): void {
  const { uid, gid } = userOfServer();
  if (uid !== undefined && gid !== undefined) chownSync(folder, uid, gid);
}

/**
 * Returns the user that runs servers, as options for {@link launch}. This is an ordinary user if this process is root.
 */
function userOfServer(): Pick<LaunchOptions, 'uid' | 'gid'> {
  if (!isRoot) return {};
  const users = readFileSync('/etc/passwd', 'utf8').split('\n');
  const fields = (name: string): string[] | undefined =>
    users.find((line) => line.startsWith(`${name}:`))?.split(':');
  const [, , uid, gid] = fields('postgres') ?? fields('nobody') ?? [];
  return { uid: Number(uid), gid: Number(gid) };
}

/** Runs a program to its end, as the user that runs servers. @throws Error with its messages if it fails. */
export async function runAsServer(program: string, args: string[], cwd: string): Promise<void> {
  const child = launch(program, args, { ...userOfServer(), cwd, env: process.env });
  child.stdin.end();
  child.stdout.resume();
  const [stderr] = await Promise.all([text(child.stderr), once(child, 'close')]);
  if (child.exitCode !== 0) throw new Error(`${program}: ${stderr}`);
}

/** A server that runs until it is ended or this process exits. */
export class ServerProcess {
  readonly pid: number;
  readonly #child: Launched;
  readonly #ended: Promise<void>;

  private constructor(child: Launched, ended: Promise<void>) {
    this.#child = child;
    this.#ended = ended;
    this.pid = child.pid ?? 0;
    const atExit = (): void => void child.kill('SIGQUIT');
    process.on('exit', atExit);
    void ended.then(() => process.off('exit', atExit));
  }

  /**
   * Starts a server. Resolves when the server reports that it is ready.
   * @throws Error with the server's output if it ends before that
   */
  static async start(program: string, args: string[], cwd: string, ready: RegExp): Promise<ServerProcess> {
    const child = launch(program, args, { ...userOfServer(), cwd, env: process.env });
    child.stdin.end();
    child.stdout.resume();
    const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
    await once(child, 'spawn');
    const server = new ServerProcess(child, ended);
    let output = '';
    const isReady = new Promise<boolean>((resolve) => {
      child.stderr.on('data', (bytes: Buffer) => {
        if (output.length < 100_000) output += bytes.toString();
        if (ready.test(output)) resolve(true);
      });
      void ended.then(() => resolve(false));
    });
    if (!(await isReady)) throw new Error(output);
    return server;
  }

  /** Ends the server immediately. The server ends the processes that it started and removes its shared memory. */
  async end(): Promise<void> {
    this.#child.kill('SIGQUIT');
    await this.#ended;
  }

  /** Ends the server, and each process that it started, with SIGKILL. */
  async kill(): Promise<void> {
    const children = childrenOf(this.pid);
    this.#child.kill('SIGKILL');
    for (const child of children) killIfThere(child);
    await this.#ended;
  }
}

/** Returns a loopback port on which nothing listens. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function childrenOf(pid: number): number[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((each) => parentOf(each) === pid);
}

function parentOf(pid: number): number | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop()?.split(' ') ?? [];
    return Number(fields[1]);
  } catch {
    return undefined;
  }
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has already ended, because its parent has ended.
  }
}

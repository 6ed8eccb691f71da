import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { addServeOptions, serve } from '../../src/cli/commands/sandbox/serve.ts';
import { createContext } from '../../src/cli/context.ts';
import { rules as settings } from '../../src/config/rules.ts';
import { allFaults } from '../../src/sandbox/faults.ts';
import { magicWords } from '../../src/sandbox/tasks.ts';
import { canaryKey, type CliResult, type User } from '../support/cli.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { onEnd } from '../support/clean-ups.ts';
import { userHere } from '../support/one-process.ts';

const script = (name: string): string => fileURLToPath(new URL(`../../scripts/${name}`, import.meta.url));
const hasCurl = spawnSync('curl', ['--version']).status === 0;
const agentScript = fileURLToPath(new URL('../support/tool-agent.mjs', import.meta.url));
const pace = ['--pace', '20ms'];
// The fault client-gives-up delays a response by thirty times the pace. The delay must exceed the agent's timeout of
// five seconds.
const slow = ['--pace', '200ms'];
const boat = 'mgw video c submit --model vendor-h3-mini --duration 5 --prompt "a paper boat"';

let user: User;
let scripts = 0;
beforeEach(() => (user = userHere()));

/**
 * Runs `mgw sandbox exec` in this process. The script would inherit this process's streams, so it writes to files
 * instead. In the result, the script's output precedes mgw's.
 */
async function exec(args: string[], lines: string, env: NodeJS.ProcessEnv = {}): Promise<CliResult> {
  const output = join(user.cwd, `script-${(scripts += 1)}`);
  const script = `cd '${user.cwd}'; exec <"/dev/null" >"$0.out" 2>"$0.err"\n${lines}`;
  const paced = args.includes('--pace') ? args : [...pace, ...args];
  const run = await user.run(['sandbox', 'exec', ...paced, '--', 'sh', '-c', script, output], {
    env,
  });
  const of = (path: string): string => (existsSync(path) ? readFileSync(path, 'utf8') : '');
  return {
    code: run.code,
    stdout: of(`${output}.out`) + run.stdout,
    stderr: of(`${output}.err`) + run.stderr,
    get json() {
      return run.json;
    },
  };
}

/** Runs `mgw sandbox exec` in a separate process, whose streams the script inherits. */
function execAlone(args: string[], options?: Parameters<User['start']>[1]): Promise<CliResult> {
  return user.start(['sandbox', 'exec', ...args], options).result;
}

/** Creates a folder for mgw's temporary files until the test ends. */
function temporaryFolder(name: string): string {
  const folder = join(user.cwd, name);
  mkdirSync(folder);
  vi.stubEnv('TMPDIR', folder);
  onEnd(() => void vi.unstubAllEnvs());
  return folder;
}

interface Finding {
  kind: string;
}

function kinds({ json }: CliResult): string[] {
  return (json['findings'] as Finding[]).map(({ kind }) => kind);
}

function charges({ json }: CliResult): number {
  return (json['bill'] as unknown[]).length;
}

describe('sandbox exec', () => {
  it('exits with the exit code of the script', async () => {
    const codes = { 'exit 0': 0, 'kill -TERM $$': 143, 'kill -KILL $$': 137 };
    for (const [lines, code] of Object.entries(codes)) expect((await exec([], lines)).code).toBe(code);
    expect((await exec(['--verify'], 'exit 42')).code).toBe(42);
  });

  it('reports a command that cannot be run', async () => {
    const run = await user.run(['sandbox', 'exec', '--', './nothing-here']);
    expect(run).toMatchObject({ code: 2, stdout: '' });
    expect(run.stderr).toContain('./nothing-here cannot be run');
  });

  it('passes its three standard streams to the script, and with --json reserves stdout for the document', async () => {
    const plain = await execAlone(['--', 'sh', '-c', 'cat; echo err >&2'], { stdin: 'in' });
    expect(plain).toMatchObject({ stdout: 'in', stderr: 'err\n' });
    const json = await execAlone(['--json', '--', 'sh', '-c', 'echo out; exit 3']);
    expect(json.json).toMatchObject({ ok: false, exit_code: 3, script_exit_code: 3, bill: [], total: 0 });
    expect(json.stderr).toContain('out\n');
  });

  it("forwards a signal, and exits with the script's exit code", async () => {
    const lines = 'trap "echo stopped; exit 9" TERM; echo ready; while :; do sleep 0.1; done';
    const { child, result } = user.start(['sandbox', 'exec', '--', 'sh', '-c', lines]);
    child.stdout?.once('data', () => child.kill('SIGTERM'));
    expect(await result).toMatchObject({ code: 9, stdout: 'ready\nstopped\n' });
  });

  it('leaves no files behind, and works twice in a row with the same --key', async () => {
    const folder = temporaryFolder('tmp');
    for (const name of ['one.mp4', 'two.mp4']) {
      const run = await exec(['-q', '--json'], `${boat} --key boat -o "$FILE"`, { FILE: name });
      expect(run.code, run.stderr).toBe(0);
      expect(run.stdout.split('\n')[0]).toBe(join(user.cwd, name));
      expect(charges(run)).toBe(1);
    }
    expect(readdirSync(folder)).toEqual([]);
    expect(charges(await user.run(['sandbox', 'bill', '--json']))).toBe(2);
  });

  it('refuses unsupported limits and faults before the script runs', async () => {
    expect((await exec(['--min-poll', '5s'], 'echo ran')).stdout).toBe('');
    const run = await exec(['--fault', 'submit-rply-lost'], 'echo ran');
    expect(run).toMatchObject({ code: 2, stdout: '' });
    expect(run.stderr).toContain('Did you mean submit-reply-lost?');
  });
});

describe('the real gateway', () => {
  let real: FaultGateway;
  beforeEach(async () => {
    real = await FaultGateway.start({ protocol: 'c' });
  });
  afterEach(() => real.close());

  /** Configures the real gateway in every config file that mgw may read. */
  function configure(): void {
    const profile = { base_url: real.url, api_key: canaryKey };
    for (const folder of ['config', '.config/mgw', 'xdg/mgw']) {
      mkdirSync(join(user.cwd, folder), { recursive: true, mode: 0o700 });
      const config = { profiles: { default: profile, prod: profile } };
      writeFileSync(join(user.cwd, folder, 'config.json'), JSON.stringify(config), { mode: 0o600 });
    }
  }

  it('is unreachable for a script, and neither the environment nor a config file reveals its key or address', async () => {
    const keyFile = join(user.cwd, 'key');
    writeFileSync(keyFile, `${canaryKey}\n`, { mode: 0o600 });
    const copies = {
      PGPASSWORD: 'pg-canary',
      PGSSLPASSWORD: 'tls-canary',
      AWS_CONTAINER_AUTHORIZATION_TOKEN: 'aws-canary',
      MGW_STATE: 'postgres://mgw:pg-canary@db.example.com/mgw',
      DATABASE_URL: 'postgres://mgw:pg-canary@db.example.com/mgw',
      DEPLOY_SECRET: `key=${canaryKey}`,
      CURL_HEADER: `Authorization: Bearer ${canaryKey}`,
      OTHER: 'kept',
    };
    const fromFile = { ...copies, MGW_API_KEY_FILE: keyFile, MGW_BASE_URL: real.url };
    const runs = [await exec([], 'env', fromFile)];
    configure();
    runs.push(await exec([], 'env', copies));
    const all = `env; mgw config list --json; mgw --profile prod auth status; ${boat} -v`;
    runs.push(await exec([], all, { ...copies, MGW_API_KEY: canaryKey, MGW_BASE_URL: real.url }));
    for (const { stdout, stderr } of runs) {
      expect(stdout).toContain('MGW_API_KEY=sandbox-key');
      expect(stdout).toContain('OTHER=kept');
      expect(stdout + stderr).not.toContain(canaryKey);
      expect(stdout + stderr).not.toMatch(/(pg|tls|aws)-canary/);
      expect(stdout + stderr).not.toContain(real.url);
    }
    expect(real.seen).toEqual([]);
    expect(charges(await user.run(['sandbox', 'bill', '--json']))).toBe(1);
    expect((await exec([], 'env', { MGW_API_KEY_FILE: join(user.cwd, 'none') })).code).toBe(0);
  });

  // Ways in which a script may change the environment before it calls mgw. HERE is the folder of the real config. The
  // scripts keep XDG_CACHE_HOME, because mgw starts faster with its compile cache.
  const kept = 'PATH="$PATH" XDG_CACHE_HOME="$XDG_CACHE_HOME"';
  const changes = [
    `/usr/bin/env -i ${kept} sh -c 'cd / && exec "$@"' sh`,
    `env -i HOME="$HERE" ${kept}`,
    `env -i ${kept} XDG_CONFIG_HOME="$HERE/xdg"`,
    'env -u MGW_SANDBOX -u MGW_CONFIG_DIR -u MGW_API_KEY -u MGW_BASE_URL',
    'env MGW_SANDBOX= MGW_PROFILE=prod MGW_API_KEY_FILE="$HERE/key"',
    'env MGW_SANDBOX=no MGW_CONFIG_DIR="$HERE/config" MGW_STATE_DIR="$HERE/other"',
    'env MGW_API_KEY=some-other-key MGW_BASE_URL=http://127.0.0.1:9',
  ];
  it('is not reached, regardless of how a script changes its environment and config', async () => {
    configure();
    const env = { HERE: user.cwd, XDG_CONFIG_HOME: join(user.cwd, 'xdg') };
    const lines = changes.map(
      (change, n) => `${change} ${n === 0 ? boat : 'mgw models'} --base-url ${real.url} || exit ${n + 1}`,
    );
    const set = `mgw config set base_url ${real.url}`;
    const run = await exec(['--json'], [set, ...lines].join('\n'), env);
    expect(run.json['script_exit_code'], run.stderr).toBe(0);
    expect(charges(run)).toBe(1);
    expect(real.seen).toEqual([]);
  });

  it('is not reached by another copy of mgw, whose home contains no key', async () => {
    configure();
    const mgw = `${process.execPath} ${fileURLToPath(new URL('../../bin/mgw.js', import.meta.url))}`;
    const here = boat.replace('mgw', mgw);
    const run = await exec(['--json'], `${here}; env -i HOME="$HOME" ${here}`);
    expect(run.json['script_exit_code']).toBe(2);
    expect(charges(run)).toBe(1);
    expect(real.seen).toEqual([]);
  });

  it("is not reached if the script's folder cannot be part of a PATH, because the script does not run", async () => {
    const odd = temporaryFolder('a:b');
    const run = await exec([], 'echo ran');
    expect(run).toMatchObject({ code: 2, stdout: '' });
    expect(run.stderr).toContain('TMPDIR');
    expect(readdirSync(odd)).toEqual([]);
  });

  it.skipIf(!hasCurl)('is replaced by the sandbox, regardless of a proxy in the environment', async () => {
    const get = 'curl -sf -o /dev/null -H "Authorization: Bearer $MGW_API_KEY" "$MGW_BASE_URL/v1/models"';
    const proxy = { http_proxy: 'http://127.0.0.1:9', HTTP_PROXY: 'http://127.0.0.1:9' };
    expect((await exec([], `${get} && mgw models`, proxy)).code).toBe(0);
  });
});

describe('exec --verify', () => {
  it.skipIf(!hasCurl)('fails a script that retries after a lost response', async () => {
    const run = await exec(['--verify', '--fault', 'submit-reply-lostx1'], script('naive.sh'));
    expect(run.code).toBe(5);
    expect(run.stderr).toContain('charged-twice: The same request was charged 2 times, 20 credits in all.');
    expect(run.stderr).toContain('Play money: 2 charges, 20 credits. (exit 5)');
    expect(run.stderr).not.toContain('Nothing was charged');
  });

  it("fails a script that makes mgw pay again, and reports this together with the script's exit code", async () => {
    const run = await exec(
      ['--verify', '--json', '--fault', 'submit-reply-lostx1'],
      `${boat} --new || ${boat} --new`,
    );
    expect(run.json).toMatchObject({ ok: false, exit_code: 5, script_exit_code: 0 });
    expect(run.json.error).toMatchObject({ code: 'task_failed', charged: 'yes', retry: 'never' });
    expect(kinds(run)).toContain('charged-twice');
    expect(charges(run)).toBe(2);
  });

  it("passes the documentation's example even with the fault chaos@30%", async () => {
    const chaos = ['--fault', 'chaos@30%', '--seed', '1'];
    const run = await exec(['--verify', '--json', ...chaos], `${script('careful.sh')} boat.mp4`);
    expect(kinds(run), run.stderr).toEqual([]);
    expect(charges(run)).toBeLessThanOrEqual(1);
  });

  it('passes an agent that uses one key, even though its tool call times out', async () => {
    const tool = `mgw video c submit --model vendor-h3-mini --duration 5 --prompt boat -o boat.mp4`;
    const agent = `${process.execPath} ${agentScript} 5000 -- ${tool}`;
    const run = await exec([...slow, '--verify', '--json', '--fault', 'client-gives-upx1'], agent);
    expect(kinds(run), run.stderr).toEqual([]);
    expect(run.json).toMatchObject({ exit_code: 0, script_exit_code: 0 });
    expect(charges(run)).toBe(1);
  });

  it('prints how to reproduce the faults if no seed was specified', async () => {
    expect((await exec(['--fault', 'chaos'], 'true')).stderr).toMatch(
      /To reproduce these faults: --seed \d+/,
    );
  });

  it("reports polling that is faster than --min-poll, but never mgw's own polling", async () => {
    const open = ['--fault', 'never-finishes'];
    const hasty = [boat, 'mgw video c status @last', 'mgw video c status @last'].join(' && ');
    expect(kinds(await exec(['--verify', '--json', '--min-poll', '1m', ...open], hasty))).toEqual([
      'polled-too-fast',
    ]);
    const careful = await exec(['--verify', '--json', '--min-poll', '700ms'], `${boat} -o b.mp4`);
    expect(kinds(careful), careful.stderr).toEqual([]);
  });
});

describe('the sandbox account', () => {
  const submit = ['video', 'c', 'submit', 'x', '--model', 'vendor-h3-mini', '--duration', '5'];

  /** Starts a sandbox with the given flags of `start` and `exec`, and configures it as the user's gateway. */
  async function served(...flags: string[]): Promise<void> {
    const command = new Command().exitOverride();
    addServeOptions(command);
    command.parse([...pace, ...flags], { from: 'user' });
    const stream = new PassThrough();
    const io = { stdin: stream, stdout: stream, stderr: stream, env: user.env };
    const context = createContext(io, {});
    const sandbox = await serve(context, join(user.cwd, 'gateway'), command.opts());
    onEnd(() => sandbox.close());
    onEnd(() => context.close());
    Object.assign(user.env, { MGW_BASE_URL: sandbox.url, MGW_API_KEY: sandbox.key });
  }

  it('has a balance that a flag or the config sets, and that can be used up', async () => {
    await served('--balance', '15');
    expect((await user.run(submit)).code).toBe(0);
    const refused = await user.run([...submit, '--new']);
    expect(refused.code).toBe(4);
    expect(refused.stderr).toContain('Insufficient balance');
    expect((await user.run(['config', 'set', 'sandbox.balance', '15.5'])).code).toBe(0);
    expect((await user.run(['--sandbox', ...submit])).code).toBe(0);
    expect((await user.run(['--sandbox', ...submit, '--new'])).code).toBe(4);
    expect((await user.run(['sandbox', 'reset'])).code).toBe(0);
    expect((await user.run(['--sandbox', ...submit])).code).toBe(0);
  });

  it('has concurrency and rate limits, and mgw waits until a request is permitted', async () => {
    await served('--concurrency', '1', '--per-minute', '2');
    expect((await user.run(submit)).code).toBe(0);
    const second = await user.run([...submit, '--new', '--retries', '9']);
    expect(second.code, second.stderr).toBe(0);
    expect((await user.run([...submit, '--new', '--retries', '0'])).code).toBe(6);
  });

  it('has keys for some models, and voices for all keys', async () => {
    await served('--key', 'sandbox-key=text-1', '--key', 'team-b', '--voice', 'zh_female_real');
    expect((await user.run(['models', '-q'])).stdout).toMatch(/^text-1 .*\n$/m);
    expect((await user.run(submit)).code).toBe(4);
    const env = { MGW_API_KEY: 'team-b' };
    expect((await user.run(submit, { env })).code).toBe(0);
    const say = ['tts', 'Good morning', '--speaker', 'zh_female_real', '-o', 'a.mp3'];
    expect((await user.run(say, { env })).code).toBe(0);
    await expect(served('--key', 'team-b=vendor-h4')).rejects.toThrow('--key: There is no model vendor-h4');
  });

  it('cannot have an invalid balance', async () => {
    for (const balance of ['-1', '1e3', 'much', '0.0000001'])
      expect(await user.run(['sandbox', 'exec', `--balance=${balance}`, '--', 'echo'])).toMatchObject({
        code: 2,
        stdout: '',
      });
  });
});

describe('mgw sandbox', () => {
  it('bill prints the charges for commands with --sandbox, and `reset` clears the bill', async () => {
    const submit = ['video', 'c', 'submit', 'a boat', '--model', 'vendor-h3-mini', '--duration', '5'];
    await user.run(['--sandbox', ...submit]);
    const bill = await user.run(['sandbox', 'bill']);
    expect(bill.stdout).toMatch(/c +vendor-h3-mini +task_\w+ +5 s +10\n\ntotal: 10 credits\n$/);
    expect((await user.run(['sandbox', 'reset'])).code).toBe(0);
    expect((await user.run(['sandbox', 'bill', '--json'])).json).toMatchObject({ bill: [], total: 0 });
    expect((await user.run(['--sandbox', 'jobs', 'ls', '--json'])).json).toMatchObject({ jobs: [] });
  });

  it('faults prints every fault and every magic word', async () => {
    const run = await user.run(['sandbox', 'faults', '--json']);
    expect(run.json['faults']).toEqual(allFaults);
    expect(run.json['magic_words']).toEqual(magicWords);
    const text = (await user.run(['sandbox', 'faults'])).stdout;
    const rows = text.split('\n').map((line) => line.split(/ {2,}/));
    for (const { name, on, does } of allFaults) expect(rows).toContainEqual([name, on, does]);
    for (const { word, areas, does } of magicWords) expect(rows).toContainEqual([word, areas, does]);
  });

  it('start serves mgw and other clients until it is stopped', async () => {
    const { child, result } = user.start(['sandbox', 'start', ...pace, '--fault', 'models-502x1']);
    const exports = await new Promise<string>((resolve) =>
      child.stdout?.once('data', (chunk: Buffer) => resolve(String(chunk))),
    );
    const lines = [...exports.matchAll(/^export (\w+)=(\S+)$/gm)].map(([, name, value]) => [name, value]);
    const env = Object.fromEntries(lines) as Record<string, string>;
    expect(Object.keys(env)).toEqual(['MGW_BASE_URL', 'MGW_API_KEY', 'MGW_SANDBOX']);
    const models = await user.run(['models', '--json'], { env });
    expect(models.json['models'], models.stderr).not.toEqual([]);
    const port = new URL(env['MGW_BASE_URL'] ?? '').port;
    const second = await user.run(['sandbox', 'start', '--port', port]);
    expect(second.code).toBe(2);
    expect(second.stderr).toContain(`--port ${port}: the sandbox cannot listen on this port`);
    child.kill('SIGTERM');
    expect((await result).code).toBe(0);
  });

  it('start reports an unusable folder', async () => {
    writeFileSync(join(user.cwd, 'state'), 'a file');
    const run = await user.run(['--sandbox', 'models']);
    expect(run.code).toBe(10);
    expect(run.stderr).toContain(join(user.cwd, 'state'));
  });
});

describe('docs/sandbox.md', () => {
  const text = readFileSync(new URL('../../docs/sandbox.md', import.meta.url), 'utf8');

  it('contains the command that lists the faults, and only existing faults', () => {
    expect(text).toContain('mgw sandbox faults');
    const documented = [...text.matchAll(/--fault ([a-z0-9-]+?)(?:x\d+)?(?=[@\s`])/g)].map(
      ([, name = '']) => name,
    );
    const faultNames: readonly string[] = allFaults.map(({ name }) => name);
    expect(documented.length).toBeGreaterThan(3);
    expect(documented.filter((name) => !faultNames.includes(name))).toEqual([]);
  });

  it('lists every flag of sandbox start, and every setting', async () => {
    const help = (await user.run(['sandbox', 'start', '--help'])).stdout;
    const flags = [...help.matchAll(/^ +(--[a-z-]+)/gm)].map(([, flag = '']) => flag);
    expect(flags).toContain('--per-minute');
    for (const flag of flags.filter((each) => each !== '--help')) expect(text).toContain(flag);
    for (const { key } of Object.values(settings).filter(({ key }) => key.startsWith('sandbox.')))
      expect(text).toContain(`\`${key}\``);
  });
});

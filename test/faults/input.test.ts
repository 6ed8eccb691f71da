import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect } from 'vitest';
import { canaryKey } from '../support/cli.ts';
import { encodeEvent } from '../../src/ledger/event-log.ts';
import { ledgerOf } from './invariants.ts';
import { fast, it, shown, type Scene } from './scene.ts';

const mini = ['video', 'c', 'submit', '--model', 'vendor-h3-mini'];
const official = ['video', 'c', 'submit', '--model', 'vendor-h3', '--prompt', 'a boat'];
const b = ['video', 'b', 'submit', '--model', 'Video-B', '--model-version', '2.0', '--prompt', 'a boat'];
const boat = [...mini, '--prompt', 'a boat'];

/** A command line, the text that its error message must contain, and the content of standard input. */
type Case = [args: string[], named: string, input?: Buffer];

/**
 * Adds a test that runs each command line. Expects exit 2, a message that contains the field, and no request. The tests
 * of `src/protocols`, `src/config` and `src/clock.ts` contain more values.
 */
function refuses(...cases: Case[]): void {
  it('are refused, and the error contains the field', async ({ open }) => {
    const scene = await open('c');
    for (const [args, named, input] of cases) {
      const json = await scene.here(args, { stdin: input });
      expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 2, error: { charged: 'no' } });
      expect(json.error.message).toContain(named);
    }
    expect(scene.gateway.seen).toEqual([]);
    await scene.expectInvariants(0);
  });
}

const urls = (flag: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => [flag, `https://example.com/${index}.bin`]).flat();

describe.concurrent('unknown flags and commands', () => {
  refuses(
    [[...boat, '--pormpt', 'x'], '--prompt'],
    [['vidoe', 'c', 'submit'], 'video'],
    [['video', 'c', 'sumbit'], 'submit'],
    [['jobs', 'resume', 'x'], 'resume'],
  );
});

describe.concurrent('flags given twice or without a value', () => {
  refuses(
    [[...boat, '--duration', '5', '--duration', '6'], '--duration'],
    [[...boat, '--timeout', '5m', '--timeout', '6m'], '--timeout'],
    [[...mini, '--prompt'], '--prompt'],
    [[...boat, '--base-url'], '--base-url'],
  );
});

describe.concurrent('a global flag without a value', () => {
  it('leads to exit 2 in a separate process too', async ({ open }) => {
    const scene = await open('c');
    const run = await scene.run(['jobs', 'ls', '--base-url']);
    expect(run.code, shown(run)).toBe(2);
    expect(run.stderr).toContain('--base-url');
  });
});

describe.concurrent('empty and overlong prompts', () => {
  refuses(
    [[...mini, ''], 'prompt'],
    [[...mini], '--prompt'],
    [[...mini, '-'], 'PROMPT', Buffer.from('\n')],
    [[...mini, '--prompt', '-', '--body', '-'], 'both', Buffer.from('{}')],
    [[...mini, '--prompt', '\u{1f6a2}'.repeat(30_001)], '30001'],
    [[...mini, 'one', '--prompt', 'two'], '--prompt'],
  );
});

describe.concurrent('unreadable inputs', () => {
  refuses(
    [[...mini, '-'], 'UTF-8', Buffer.from([0x61, 0xff, 0xfe])],
    [[...mini, '--body', '@-'], 'UTF-8', Buffer.from([0xc3, 0x28])],
    [[...boat, '--body', '@/nowhere/body.json'], '/nowhere/body.json'],
    [[...boat, '--body', '@/tmp'], '/tmp'],
    [['tts', '--file', '/nowhere/text.txt', '-o', '/tmp/never.mp3'], '/nowhere/text.txt'],
    [['tts', '-', '-o', '/tmp/never.mp3'], 'UTF-8', Buffer.from([0x61, 0xff, 0xfe])],
    [['tts', ' ', '-o', '/tmp/never.mp3'], 'text'],
    [[...boat, '--body', '[1]'], '--body'],
  );
  it('are refused without a wait if the file is a FIFO', async ({ open }) => {
    const scene = await open('c');
    const path = join(scene.user.cwd, 'fifo');
    execFileSync('mkfifo', [path]);
    const body = await scene.here([...boat, '--body', `@${path}`]);
    expect(body).toMatchObject({ exit_code: 2 });
    expect(body.error.message).toContain('--body');
    const text = await scene.here(['tts', '--file', path, '-o', join(scene.user.cwd, 'never.mp3')]);
    expect(text).toMatchObject({ exit_code: 2 });
    expect(text.error.message).toContain('--file');
    expect(scene.gateway.seen).toEqual([]);
  });
});

describe.concurrent('invalid durations', () => {
  refuses(
    [[...boat, '--duration=1e3'], '--duration'],
    [[...boat, '--duration='], '--duration'],
    [[...b, '--duration=5 '], '--duration'],
  );
});

describe.concurrent('the limits of the official model', () => {
  refuses(
    [[...official, '--duration', '16'], '--duration'],
    [[...official, '--resolution', '768p'], '--resolution'],
    [[...official, ...urls('--reference-image', 10)], '--reference-image'],
  );
});

describe.concurrent('the limits of the self-hosted models', () => {
  refuses(
    [[...boat, '--duration', '4'], '--duration'],
    [[...boat, '--aspect-ratio', '2:1'], '--aspect-ratio'],
    [[...boat, ...urls('--reference-video', 1)], '--reference-video'],
    [[...boat, '--mode', 'r2v'], 'reference'],
    [[...boat, '--duration', '5', '--set', 'seconds=5'], 'seconds'],
  );
});

describe.concurrent('names, letter case and refused fields of Protocol B', () => {
  refuses(
    [[...b, '--resolution', '720p'], '--resolution'],
    [[...b, '--body', '{"outputConfig":{"Duration":5}}'], 'outputConfig'],
    [[...b, '--set', 'OutputConfig.AudioGeneration=enabled'], 'AudioGeneration'],
    [[...b, '--set', 'FileInfos.0.FileId=1'], 'FileId'],
  );
});

describe.concurrent('asset URLs that the gateway cannot reach', () => {
  refuses(
    [[...boat, '--image', 'file:///etc/passwd'], '--image'],
    [[...boat, '--reference-image', 'http://10.0.0.1/a.png'], '--reference-image'],
    [[...b, '--first-frame', 'http://127.0.0.1/a.png'], 'FileInfos'],
  );
});

describe.concurrent('invalid images of Protocol A', () => {
  it('are refused if the file is huge or contains text', async ({ open }) => {
    const scene = await open('a');
    const path = join(scene.user.cwd, 'image.png');
    for (const bytes of [10, 65 * 1024 * 1024]) {
      writeFileSync(path, 'just words');
      truncateSync(path, bytes);
      const json = await scene.here([...scene.gateway.dialect.command, '--image', path]);
      expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 2 });
      expect(json.error.message).toContain('--image');
    }
    expect(scene.gateway.seen).toEqual([]);
  });
});

describe.concurrent('models that do not exist', () => {
  refuses(
    [['video', 'a', 'submit', '--model', 'a/../b', '--prompt', 'a boat'], 'model'],
    [['video', 'c', 'submit', '--prompt', 'a boat'], '--model'],
  );
  it('are refused if the model list does not contain them, and nothing is submitted', async ({ open }) => {
    const scene = await open('b');
    const json = await scene.here(['video', 'b', 'submit', '--model', 'video-b', '--prompt', 'a boat']);
    expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 2 });
    expect(json.error.message).toContain('Video-B');
    expect(scene.gateway.submissions).toEqual([]);
    await scene.expectInvariants(0);
  });
});

describe.concurrent('invalid job names and timeouts', () => {
  refuses(
    [[...boat, '--key=a/b'], '--key'],
    [[...boat, '--key', 'x', '--new'], '--key'],
    [[...boat, '--timeout=5'], '--timeout'],
    [[...boat, '--poll-interval', '5'], '--poll-interval'],
    [[...boat, '--retries', '1.5'], '--retries'],
  );
});

describe.concurrent('unusable API keys and base URLs', () => {
  const secret = 'sk-secret-0123456789abcdef';
  const cases: [NodeJS.ProcessEnv, string][] = [
    [{ MGW_API_KEY: `${secret}\nx` }, 'MGW_API_KEY'],
    [{ MGW_API_KEY: `Bearer ${secret}` }, 'MGW_API_KEY'],
    [{ MGW_API_KEY: '' }, 'MGW_API_KEY'],
    [{ MGW_BASE_URL: `https://user:${secret}@gateway.example` }, 'MGW_BASE_URL'],
    [{ MGW_BASE_URL: 'http://gateway.example' }, 'MGW_BASE_URL'],
  ];
  it('are refused, and the key is not printed', async ({ open }) => {
    const scene = await open('c');
    for (const [env, named] of cases) {
      const json = await scene.here(boat, { env });
      expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 2, error: { code: 'config' } });
      expect(json.error.message).toContain(named);
      expect(JSON.stringify(json)).not.toContain(secret.slice(3));
    }
    expect(scene.gateway.seen).toEqual([]);
    await scene.expectInvariants(0);
  });
});

describe.concurrent('unusable config files', () => {
  const config = JSON.stringify({ profiles: { default: { api_key: canaryKey } } });
  const cases: [string, (path: string) => void][] = [
    ['that is not JSON', (path) => writeFileSync(path, 'api_key: x', { mode: 0o600 })],
    ['that contains a key and that others can read', (path) => writeFileSync(path, config, { mode: 0o644 })],
    [
      'that contains a nested __proto__',
      (path) =>
        writeFileSync(path, '{"profiles":{"default":{"__proto__":{"base_url":"x"}}}}', { mode: 0o600 }),
    ],
    ['that is a FIFO', (path) => execFileSync('mkfifo', [path])],
  ];
  it('are refused', async ({ open }) => {
    const scene = await open('c');
    const folder = join(scene.user.cwd, 'config');
    mkdirSync(folder, { mode: 0o700 });
    const path = join(folder, 'config.json');
    for (const [kind, make] of cases) {
      make(path);
      const json = await scene.here(boat);
      expect(json, `a file ${kind}`).toMatchObject({ exit_code: 2, error: { code: 'config' } });
      expect(json.error.message).toContain(path);
      rmSync(path);
    }
    expect(scene.gateway.seen).toEqual([]);
  });
});

describe.concurrent('damaged state files', () => {
  // test/ledger/damage.test.ts truncates each file at every byte, and flips bits in every byte.
  const kinds: [string, (path: string, whole: Buffer) => void][] = [
    ['empty', (path) => writeFileSync(path, '')],
    [
      'of a future version',
      (path, whole) => writeFileSync(path, whole.toString().replaceAll('{"v":1', '{"v":2')),
    ],
    [
      'swapped for a link',
      (path, whole) => {
        writeFileSync(`${path}.elsewhere`, whole);
        rmSync(path);
        symlinkSync(`${path}.elsewhere`, path);
      },
    ],
    [
      'swapped for a folder',
      (path) => {
        rmSync(path);
        mkdirSync(path);
      },
    ],
  ];
  it('do not cause a crash, and nothing is sent, because "sending" may have been recorded', async ({
    open,
  }) => {
    const scene = await open('c');
    const running = scene.start(boat);
    scene.gateway.script.submit.push(() => running.child.kill('SIGKILL'));
    await running.result;
    const folder = join(scene.user.cwd, 'state', 'jobs');
    const path = join(folder, readdirSync(folder)[0] ?? '');
    const whole = readFileSync(path);
    for (const [kind, damage] of kinds) {
      rmSync(path, { recursive: true });
      writeFileSync(path, whole);
      damage(path, whole);
      const json = await scene.here(boat);
      expect([2, 7, 10], `${kind}: ${JSON.stringify(json)}`).toContain(json.exit_code);
      expect(scene.gateway.submissions, kind).toHaveLength(1);
      const jobs = await ledgerOf(scene.user.env);
      expect(
        jobs.map(({ state }) => state),
        kind,
      ).toEqual(['unknown']);
    }
  });
});

describe.concurrent('a ledger of 2,000 jobs', () => {
  it('can be listed, and accepts another job', async ({ open }) => {
    const scene = await open('c');
    const folder = join(scene.user.cwd, 'state', 'jobs');
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const base_url = scene.gateway.url;
    const prepared = { type: 'prepared', protocol: 'c', base_url, fingerprint: 'x', account: 'y' } as const;
    const text = encodeEvent(prepared, 0) + encodeEvent({ type: 'accepted', handle: 'task_9' }, 0);
    for (let number = 0; number < 2000; number += 1) {
      writeFileSync(join(folder, `job_0${String(number).padStart(13, '0')}.jsonl`), text);
    }
    const run = await scene.here([...boat, '-o', scene.out, ...fast]);
    expect(run).toMatchObject({ exit_code: 0 });
    const listed = await scene.here(['jobs', 'ls']);
    expect(listed).toMatchObject({ ok: true, older: 1981 });
    expect(listed['jobs']).toHaveLength(20);
    expect(scene.gateway.created).toHaveLength(1);
  });
});

describe.concurrent('a closed standard stream', () => {
  const bin = fileURLToPath(new URL('../../bin/mgw.js', import.meta.url));
  const shell = (
    scene: Scene,
    script: string,
    args: string[],
  ): { code: number; stdout: string; stderr: string } => {
    const { status, stdout, stderr } = spawnSync('sh', ['-c', script, 'sh', process.execPath, bin, ...args], {
      env: scene.user.env,
      cwd: scene.user.cwd,
      encoding: 'utf8',
    });
    return { code: status ?? -1, stdout, stderr };
  };

  it('leads to exit 2 if it is the input, and nothing is sent', async ({ open }) => {
    const scene = await open('c');
    const run = shell(scene, 'exec "$@" <&-', [...mini, '-']);
    expect(run).toMatchObject({ code: 2, stdout: '' });
    expect(run.stderr).not.toMatch(/^\s+at /m);
    expect(scene.gateway.seen).toEqual([]);
    await scene.expectInvariants(0);
  });

  it('does not cause a crash if it is the output', async ({ open }) => {
    const scene = await open('c');
    const run = shell(scene, 'exec "$@" >&-', ['jobs', 'ls']);
    expect(run.code, run.stderr).toBe(0);
    expect(existsSync(join(scene.user.cwd, 'state'))).toBe(true);
  });

  it('causes no message if the reader of the output exits early', async ({ open }) => {
    const scene = await open('c');
    const run = shell(scene, '"$@" | head -c 0; exit 0', ['jobs', 'ls', '-q', '--json']);
    expect(run).toEqual({ code: 0, stdout: '', stderr: '' });
  });
});

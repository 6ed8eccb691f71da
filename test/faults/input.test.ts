import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
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
const a = ['video', 'a', 'submit', '--model', 'video-a', '--prompt', 'a boat'];
const b = ['video', 'b', 'submit', '--model', 'Video-B', '--model-version', '2.0', '--prompt', 'a boat'];
const boat = [...mini, '--prompt', 'a boat'];

/** A command line, the text that its error message must contain, and the content of standard input. */
type Case = [args: string[], named: string, input?: Buffer];

const titleOf = (args: readonly string[]): string => {
  const title = args.map((arg) => (arg.length > 30 ? `${arg.slice(0, 27)}...` : arg)).join(' ');
  return title.replaceAll('\n', '\\n').replaceAll('%', '%%');
};

/** Adds a test for each case. The test expects exit 2, a message that contains the field, and no request. */
function refuses(cases: Case[]): void {
  for (const [args, named, input] of cases) {
    it(`are checked: mgw refuses ${titleOf(args)}`, async ({ open }) => {
      const scene = await open('c');
      const json = await scene.here(args, { stdin: input });
      expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 2, error: { charged: 'no' } });
      expect(json.error.message).toContain(named);
      expect(scene.gateway.seen).toEqual([]);
      await scene.expectInvariants(0);
    });
  }
}

/** Adds a test, with --dry-run, for each command line. The values are just within their limits. */
function takes(cases: string[][]): void {
  for (const args of cases) {
    it(`are checked: mgw accepts ${titleOf(args)}`, async ({ open }) => {
      const scene = await open('c');
      const json = await scene.here([...args, '--dry-run']);
      expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 0 });
      expect(scene.gateway.seen).toEqual([]);
    });
  }
}

const urls = (flag: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => [flag, `https://example.com/${index}.bin`]).flat();

describe.concurrent('unknown flags and commands', () => {
  refuses([
    [[...boat, '--pormpt', 'x'], '--prompt'],
    [[...boat, '--aspect-ration', '16:9'], '--aspect-ratio'],
    [['vidoe', 'c', 'submit'], 'video'],
    [['video', 'c', 'sumbit'], 'submit'],
    [['jobs', 'resume', 'x'], 'resume'],
  ]);
});

describe.concurrent('flags given twice or without a value', () => {
  refuses([
    [[...boat, '--duration', '5', '--duration', '6'], '--duration'],
    [[...boat, '--prompt', 'twice'], '--prompt'],
    [[...boat, '--timeout', '5m', '--timeout', '6m'], '--timeout'],
    [[...boat, '--duration'], '--duration'],
    [[...mini, '--prompt'], '--prompt'],
    [[...boat, '--base-url'], '--base-url'],
  ]);
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
  refuses([
    [[...mini, '--prompt', ''], '--prompt'],
    [[...mini, ''], 'prompt'],
    [[...mini], '--prompt'],
    [[...mini, '-'], 'PROMPT', Buffer.from('\n')],
    [[...mini, '--prompt', '-'], 'PROMPT', Buffer.from('\n')],
    [[...mini, '--prompt', '-', '--body', '-'], 'both', Buffer.from('{}')],
    [[...mini, '--prompt', '\u{1f6a2}'.repeat(30_001)], '30001'],
    [[...mini, 'one', '--prompt', 'two'], '--prompt'],
  ]);
  takes([[...mini, '--prompt', '\u{1f6a2}'.repeat(30_000)]]);
});

describe.concurrent('unreadable inputs', () => {
  refuses([
    [[...mini, '-'], 'UTF-8', Buffer.from([0x61, 0xff, 0xfe])],
    [[...mini, '--body', '@-'], 'UTF-8', Buffer.from([0xc3, 0x28])],
    [[...boat, '--body', '@/nowhere/body.json'], '/nowhere/body.json'],
    [[...boat, '--body', '@/tmp'], '/tmp'],
    [['tts', '--file', '/nowhere/text.txt', '-o', '/tmp/never.mp3'], '/nowhere/text.txt'],
    [['tts', '--file', '/tmp', '-o', '/tmp/never.mp3'], '/tmp'],
    [['tts', '-', '-o', '/tmp/never.mp3'], 'UTF-8', Buffer.from([0x61, 0xff, 0xfe])],
    [['tts', ' ', '-o', '/tmp/never.mp3'], 'text'],
    [[...boat, '--body', '{"model":'], '--body'],
    [[...boat, '--body', '[1]'], '--body'],
  ]);
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
  const odd = ['0', '-1', '4.5', 'NaN', '1e3', '5 ', ' 5', '0x5', '+5', 'Infinity', '', '٥'];
  refuses([
    ...odd.map((value): Case => [[...boat, `--duration=${value}`], '--duration']),
    ...['-1', '4.5', 'NaN', '1e3', '5 '].map((value): Case => [[...a, `--duration=${value}`], '--duration']),
    ...['0', '-1', '4.5', 'NaN', '1e3', '5 '].map((value): Case => [
      [...b, `--duration=${value}`],
      '--duration',
    ]),
  ]);
});

describe.concurrent('the limits of the official model', () => {
  refuses([
    [[...official, '--duration', '3'], '--duration'],
    [[...official, '--duration', '16'], '--duration'],
    [[...official, '--resolution', '720p'], '--resolution'],
    [[...official, '--resolution', '768p'], '--resolution'],
    [[...official, ...urls('--reference-image', 10)], '--reference-image'],
    [[...official, ...urls('--reference-video', 4)], '--reference-video'],
    [[...official, ...urls('--reference-audio', 4)], '--reference-audio'],
  ]);
  takes([
    [...official, '--duration', '4'],
    [...official, '--duration', '15'],
    [...official, '--resolution', '768P'],
    [...official, '--resolution', '2K'],
    [...official, ...urls('--reference-image', 9)],
    [...official, ...urls('--reference-video', 3)],
    [...official, ...urls('--reference-audio', 3)],
    [...official, '--aspect-ratio', 'adaptive'],
  ]);
});

describe.concurrent('the limits of the self-hosted models', () => {
  const ratios = ['16:9', '9:16', '1:1', '4:3', '3:4', '21:9', '9:21', '4:5', '5:4', 'adaptive'];
  refuses([
    [[...boat, '--duration', '4'], '--duration'],
    [[...boat, '--duration', '16'], '--duration'],
    [[...boat, '--resolution', '2K'], '--resolution'],
    [[...boat, '--resolution', '720P'], '--resolution'],
    [[...boat, '--aspect-ratio', '2:1'], '--aspect-ratio'],
    [[...boat, ...urls('--reference-image', 10)], '--reference-image'],
    [[...boat, ...urls('--reference-video', 1)], '--reference-video'],
    [[...boat, ...urls('--reference-audio', 4)], '--reference-audio'],
    [[...boat, '--mode', 'r2v'], 'reference'],
    [[...boat, '--duration', '5', '--set', 'seconds=5'], 'seconds'],
    [[...boat, '--aspect-ratio', '1:1', '--set', 'ratio=1:1'], 'ratio'],
  ]);
  takes([
    [...boat, '--duration', '5'],
    [...boat, '--duration', '15'],
    [...boat, '--resolution', '720p'],
    [...boat, '--resolution', '768P'],
    ...ratios.map((ratio) => [...boat, '--aspect-ratio', ratio]),
    [...boat, ...urls('--reference-image', 9)],
    [...boat, ...urls('--reference-audio', 3)],
    [...boat, '--mode', 'r2v', ...urls('--reference-audio', 1)],
  ]);
});

describe.concurrent('names, letter case and refused fields of Protocol B', () => {
  const deep = JSON.stringify({ OutputConfig: { Duration: 5, more: [{ SubAppId: 1 }] } });
  const single = JSON.stringify({ ExtVideoParameters: { ReturnUsage: true } });
  refuses([
    [[...b, '--resolution', '720p'], '--resolution'],
    [[...b, '--body', '{"outputConfig":{"Duration":5}}'], 'outputConfig'],
    [[...b, '--body', '{"modelname":"Video-B"}'], 'modelname'],
    [[...b, '--set', 'OutputConfig.audioGeneration=Enabled'], 'audioGeneration'],
    [[...b, '--set', 'OutputConfig.AudioGeneration=enabled'], 'AudioGeneration'],
    [[...b, '--body', deep], 'SubAppId'],
    [[...b, '--set', 'FileInfos.0.FileId=1'], 'FileId'],
    [[...b, '--set', 'draft_task_id=1'], 'draft_task_id'],
    [[...b, '--body', JSON.stringify({ ExtInfo: single })], 'ExtInfo'],
    [[...b, '--body', JSON.stringify({ ExtInfo: { ExtVideoParameters: '{}' } })], 'ExtInfo'],
  ]);
});

describe.concurrent('asset URLs that the gateway cannot reach', () => {
  const bad = [
    'file:///etc/passwd',
    'data:image/png;base64,iVBORw0KGgo=',
    'ftp://example.com/a.png',
    'http://127.0.0.1/a.png',
    'http://localhost/a.png',
    'http://[::1]/a.png',
    'http://[::ffff:10.0.0.1]/a.png',
    'http://10.0.0.1/a.png',
    'http://192.168.1.1/a.png',
    'http://169.254.169.254/a.png',
    'not an address',
  ];
  refuses([
    ...bad.map((url): Case => [[...boat, '--image', url], '--image']),
    ...bad.slice(0, 4).map((url): Case => [[...b, '--first-frame', url], 'FileInfos']),
    ...bad.slice(0, 4).map((url): Case => [[...boat, '--reference-image', url], '--reference-image']),
  ]);
});

describe.concurrent('invalid images of Protocol A', () => {
  const png = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');
  const cases: [string, string, Buffer | number][] = [
    ['is empty', 'empty.png', Buffer.alloc(0)],
    ['is huge', 'huge.png', 65 * 1024 * 1024],
    ['is text', 'notes.png', Buffer.from('just words')],
  ];
  it.for(cases)('are refused if the image %s', async ([, name, content], { open }) => {
    const scene = await open('a');
    const path = join(scene.user.cwd, name);
    writeFileSync(path, typeof content === 'number' ? png : content);
    if (typeof content === 'number') truncateSync(path, content);
    const json = await scene.here([...a, '--image', path]);
    expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 2 });
    expect(json.error.message).toContain('--image');
    expect(scene.gateway.seen).toEqual([]);
  });

  it('are refused if the bytes do not match the MIME type', async ({ open }) => {
    const scene = await open('a');
    const image = { bytesBase64Encoded: png.toString('base64'), mimeType: 'image/jpeg' };
    const body = JSON.stringify({ instances: [{ prompt: 'a boat', image }] });
    const json = await scene.here(['video', 'a', 'submit', '--model', 'video-a', '--body', body]);
    expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 2 });
    expect(json.error.message).toContain('mimeType');
    expect(scene.gateway.seen).toEqual([]);
  });

  it('do not include valid image bytes in a file with a different extension', async ({ open }) => {
    const scene = await open('a');
    const path = join(scene.user.cwd, 'picture.jpg');
    writeFileSync(path, png);
    const json = await scene.here([...a, '--image', path, '--dry-run']);
    expect(JSON.stringify(json)).toContain('image/png');
  });
});

describe.concurrent('models that do not exist', () => {
  refuses([
    [['video', 'a', 'submit', '--model', 'a/../b', '--prompt', 'a boat'], 'model'],
    [['video', 'c', 'submit', '--prompt', 'a boat'], '--model'],
  ]);
  it.for([
    ['b', 'video-b', 'Video-B'],
    ['c', 'vendor-h4', 'vendor-h3-base'],
    ['c', 'Vendor-H3', 'vendor-h3-base'],
  ] as const)(
    'are refused for Protocol %s if the model list does not contain them, and nothing is submitted: %s',
    async ([name, model, listed], { open }) => {
      const scene = await open(name);
      const other = ['video', name, 'submit', '--model', model, '--prompt', 'a boat'];
      const json = await scene.here(other);
      expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 2 });
      expect(json.error.message).toContain(listed);
      expect(scene.gateway.submissions).toEqual([]);
      await scene.expectInvariants(0);
    },
  );
});

describe.concurrent('invalid job names and timeouts', () => {
  refuses([
    ...['', 'a/b', '..', 'a..b', 'a\nb', ' a', '-a'].map((key): Case => [[...boat, `--key=${key}`], '--key']),
    [[...boat, '--key', 'x', '--new'], '--key'],
    ...['5', '-1m', '1.5.5s', 'm', '5 m', '1e3s', ''].map((time): Case => [
      [...boat, `--timeout=${time}`],
      '--timeout',
    ]),
    [[...boat, '--poll-interval', '5'], '--poll-interval'],
    [[...boat, '--retries', '-1'], '--retries'],
    [[...boat, '--retries', '1.5'], '--retries'],
  ]);
});

describe.concurrent('unusable API keys and base URLs', () => {
  const secret = 'sk-secret-0123456789abcdef';
  const cases: [string, NodeJS.ProcessEnv, string][] = [
    ['a key with a newline', { MGW_API_KEY: `${secret}\nx` }, 'MGW_API_KEY'],
    ['a key in quotes', { MGW_API_KEY: `"${secret}"` }, 'MGW_API_KEY'],
    ['a key that begins with Bearer', { MGW_API_KEY: `Bearer ${secret}` }, 'MGW_API_KEY'],
    ['a key with a trailing space', { MGW_API_KEY: `${secret} ` }, 'MGW_API_KEY'],
    ['a key that is not ASCII', { MGW_API_KEY: `${secret}é` }, 'MGW_API_KEY'],
    ['an empty key', { MGW_API_KEY: '' }, 'MGW_API_KEY'],
    ['a base URL with /v1', { MGW_BASE_URL: 'https://gateway.example/v1' }, 'MGW_BASE_URL'],
    ['a base URL with a query', { MGW_BASE_URL: 'https://gateway.example/?a=b' }, 'MGW_BASE_URL'],
    [
      'a base URL with credentials',
      { MGW_BASE_URL: `https://user:${secret}@gateway.example` },
      'MGW_BASE_URL',
    ],
    ['http:// to another host', { MGW_BASE_URL: 'http://gateway.example' }, 'MGW_BASE_URL'],
    ['a base URL that is not a URL', { MGW_BASE_URL: 'gateway' }, 'MGW_BASE_URL'],
  ];
  it.for(cases)('are refused, and the key is not printed: %s', async ([, env, named], { open }) => {
    const scene = await open('c');
    const json = await scene.here(boat, { env });
    expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 2, error: { code: 'config' } });
    expect(json.error.message).toContain(named);
    expect(JSON.stringify(json)).not.toContain(secret.slice(3));
    expect(scene.gateway.seen).toEqual([]);
    await scene.expectInvariants(0);
  });
});

describe.concurrent('unusable config files', () => {
  const config = JSON.stringify({ profiles: { default: { api_key: canaryKey } } });
  const cases: [string, (path: string) => void][] = [
    ['that is not JSON', (path) => writeFileSync(path, 'api_key: x', { mode: 0o600 })],
    ['that is a folder', (path) => mkdirSync(path)],
    ['that contains a key and that others can read', (path) => writeFileSync(path, config, { mode: 0o644 })],
    [
      'that contains __proto__',
      (path) => writeFileSync(path, '{"__proto__":{"profile":"x"}}', { mode: 0o600 }),
    ],
    [
      'that contains a nested __proto__',
      (path) =>
        writeFileSync(path, '{"profiles":{"default":{"__proto__":{"base_url":"x"}}}}', { mode: 0o600 }),
    ],
    ['that is a FIFO', (path) => execFileSync('mkfifo', [path])],
    ['that is a link to nothing', (path) => symlinkSync('nothing', path)],
  ];
  it.for(cases)('are refused: a file %s', async ([, make], { open }) => {
    const scene = await open('c');
    const folder = join(scene.user.cwd, 'config');
    mkdirSync(folder, { mode: 0o700 });
    const path = join(folder, 'config.json');
    make(path);
    if (path.includes('644')) chmodSync(path, 0o644);
    const json = await scene.here(boat);
    expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 2, error: { code: 'config' } });
    expect(json.error.message).toContain(path);
    expect(scene.gateway.seen).toEqual([]);
  });
});

describe.concurrent('damaged state files', () => {
  // test/ledger/damage.test.ts truncates each file at every byte, and flips bits in every byte.
  const kinds: [string, (path: string, whole: Buffer) => void][] = [
    ['empty', (path) => writeFileSync(path, '')],
    ['cut', (path, whole) => writeFileSync(path, whole.subarray(0, -30))],
    [
      'with another byte',
      (path, whole) =>
        writeFileSync(path, Buffer.from(whole).fill('#', whole.length - 30, whole.length - 29)),
    ],
    [
      'of a future version',
      (path, whole) => writeFileSync(path, whole.toString().replaceAll('{"v":1', '{"v":2')),
    ],
    [
      'followed by an event of a later version',
      (path, whole) => writeFileSync(path, `${whole.toString()}{"v":9,"type":"later"}\n`),
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
    ['of noise', (path) => writeFileSync(path, Buffer.alloc(4096, 0xa5))],
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
    const run = await scene.run([...boat, '-o', scene.out, ...fast]);
    expect(run.code, shown(run)).toBe(0);
    const listed = await scene.run(['jobs', 'ls', '--json']);
    expect(listed.json, shown(listed)).toMatchObject({ ok: true, older: 1981 });
    expect(listed.json['jobs']).toHaveLength(20);
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

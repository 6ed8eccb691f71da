import { mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { renderSpeech } from '../../src/sandbox/media/speech.ts';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import { end, speechBody } from '../speech/frames.ts';
import { speechServer } from '../speech/harness.ts';
import { canaryKey, type CliResult, type User } from '../support/cli.ts';
import { runHereAs, userHere } from '../support/one-process.ts';

const text = 'A paper boat at sea. It floats.';

const running: Sandbox[] = [];
afterEach(async () => {
  for (const sandbox of running.splice(0)) await sandbox.close();
});

interface Bench {
  user: User;
  /** Runs a command in this process, as the user. */
  here: (args: string[], env?: NodeJS.ProcessEnv) => Promise<CliResult>;
  /** Returns the number of charges so far. */
  charges: () => number;
  file: (name: string) => Buffer;
  folder: () => string[];
}

async function bench(...faults: string[]): Promise<Bench> {
  const stateDir = mkdtempSync(join(tmpdir(), 'mgw-tts-'));
  const sandbox = await startSandbox({ stateDir, faults, keys: [canaryKey] });
  running.push(sandbox);
  const user = userHere(sandbox.url);
  return {
    user,
    here: (args, env) => runHereAs({ ...user, env: { ...user.env, ...env } }, args),
    charges: () => readBill(stateDir).length,
    file: (name) => readFileSync(join(user.cwd, name)),
    folder: () => readdirSync(user.cwd).filter((name) => !/^(state|config)$/.test(name)),
  };
}

describe('mgw tts', () => {
  it('saves an MP3, prints only its path on stdout, and reports the usage', async () => {
    const { user, file, folder } = await bench();
    const run = await user.run(['tts', text, '-o', 'a.mp3']);
    expect(run.code, run.stderr).toBe(0);
    expect(run.stdout).toBe(`${join(user.cwd, 'a.mp3')}\n`);
    expect(run.stderr).toMatch(/Spoken as job_\w+, 25 characters/);
    expect(file('a.mp3')).toEqual(Buffer.from(renderSpeech({ text, format: 'mp3', sampleRate: 24_000 })));
    expect(folder()).toEqual(['a.mp3']);
  });

  it('prints one JSON document with the job, the file and the usage, but without the key', async () => {
    const { user, here } = await bench();
    const run = await here(['tts', text, '-o', 'a.opus', '--json', '-v']);
    expect(run.json).toMatchObject({
      ok: true,
      job: { protocol: 'tts', state: 'succeeded', model: 'speech-tts-2.0', usage: { text_words: 25 } },
      files: [{ path: join(user.cwd, 'a.opus'), mime: 'audio/ogg' }],
    });
    expect(run.stdout + run.stderr).not.toContain(canaryKey);
  });

  it('reads the text from a file or standard input, without a byte order mark and a final line break', async () => {
    const { user } = await bench();
    writeFileSync(join(user.cwd, 'text.txt'), `${text}\n`);
    for (const file of ['text.txt', '-']) {
      const args = ['tts', '--file', file, '-o', 'a.pcm', '--dry-run', '--json'];
      const { json } = await user.run(args, { stdin: `\ufeff${text}\r\n` });
      expect(json['request']).toMatchObject({ body: { req_params: { text } } });
    }
  });

  it('writes the first audio to standard output before the second frame arrives', async () => {
    let finish: () => void = () => undefined;
    const server = await speechServer((response) => {
      response.writeHead(200).write(speechBody([Buffer.from('first ')]));
      finish = () => response.end(speechBody([Buffer.from('second'), end]));
    });
    const { child, result } = userHere(server.url).start(['tts', text, '-o', '-']);
    const first = await new Promise((resolve) =>
      child.stdout?.once('data', (chunk: Buffer) => resolve(String(chunk))),
    );
    expect(first).toBe('first ');
    finish();
    expect(await result).toMatchObject({ code: 0, stdout: 'first second' });
  });
});

it.each([
  ['without a key', []],
  ['with a key', ['--key', 'k']],
])('speech in doubt %s is not sent again because a default was changed', async (_, flags) => {
  const { here } = await bench('tts-500x1');
  const command = ['tts', text, ...flags, '-o', 'speech', '--json'];
  expect((await here(command)).code).toBe(7);
  const changes = [
    ['tts.speaker', 'zh_female_1'],
    ['tts.sample_rate', '8000'],
    ['tts.format', 'wav'],
  ];
  for (const change of changes) {
    await here(['config', 'set', ...change]);
    expect([change, (await here(command)).code]).toEqual([change, 7]);
  }
});

it('fields that are not in the specification are sent, with a note', async () => {
  const { user } = await bench();
  const sets = ['--set', 'user.uid=u1', '--set', 'req_params.ssml=<p>Hello.</p>'];
  const run = await user.run(['tts', text, ...sets, '-o', 'a.mp3', '--dry-run', '--json']);
  const note = 'Fields that are not in the specification are sent unchanged: req_params.ssml, user.';
  expect([run.code, run.stderr]).toEqual([0, expect.stringContaining(note)]);
  expect(run.json).toMatchObject({ request: { body: { user: { uid: 'u1' } } } });
});

describe('--split', () => {
  it('generates pieces and joins them into a complete file', async () => {
    const { user, file, folder, charges } = await bench();
    const run = await user.run(['tts', text, '--split', '--piece-length', '25', '-o', 'a.mp3', '--json']);
    expect(run.json).toMatchObject({ ok: true, jobs: [{ state: 'succeeded' }, { state: 'succeeded' }] });
    const pieces = ['A paper boat at sea.', 'It floats.'].map((piece) =>
      Buffer.from(renderSpeech({ text: piece, format: 'mp3', sampleRate: 24_000 })),
    );
    expect(file('a.mp3')).toEqual(Buffer.concat(pieces));
    expect(folder()).toEqual(['a.mp3']);
    expect(charges()).toBe(2);
    const streamed = ['tts', text, '--split', '--piece-length', '25', '-o', '-'];
    for (let take = 1; take <= 2; take += 1) {
      const { code, stderr } = await user.run(streamed);
      expect({ code, stderr }).toEqual({
        code: 0,
        stderr: expect.not.stringContaining('saved as') as unknown,
      });
    }
    const { stdout } = await user.run(['jobs', 'ls']);
    expect(stdout).not.toMatch(/0001-|pieces/);
  });
});

describe('mgw tts with invalid input', () => {
  const invalid: [string[], RegExp][] = [
    [['tts', '-o', 'a.mp3'], /No text/],
    [['tts'], /No text/],
    [['tts', 'Hi'], /No output.*next: mgw tts Hi -o speech\.mp3/s],
    [['tts', 'Hi', '--format', 'ogg_opus'], /next: mgw tts Hi --format ogg_opus -o speech\.ogg/],
    [['tts', 'Hi', '--file', 'x', '-o', 'a.mp3'], /cannot be combined/],
    [['tts', ' … ', '-o', 'a.mp3'], /req_params\.text/],
    [['tts', '', '-o', 'a.mp3'], /req_params\.text/],
    [['tts', 'Hi', '-o', 'a.flac'], /\.flac/],
    [['tts', 'Hi', '--output', '/nowhere/'], /folder/],
    [['tts', 'Hi', '-o', 'a.mp3', '--sample-rate', '0'], /--sample-rate/],
    [['tts', 'Hi', '-o', 'a.mp3', '--set', 'model=x'], /model/],
    [['tts', 'Hi', '-o', 'a.mp3', '--set', 'req_params.audio_params.format=wav'], /--format wav/],
    [['tts', 'Hi', '-o', '-', '--json'], /standard output/],
    [['tts', 'Hi', '-o', 'a.mp3', '--key', 'a/b'], /--key/],
    [['tts', 'Hi', '-o', 'a.mp3', '--key', 'a', '--split'], /--split/],
    [['tts', 'Hi', '-o', 'a.mp3', '--concurrency', '2'], /requires --split/],
    [['tts', 'Hi', '-o', 'a.aac', '--format', 'aac', '--split'], /cannot join aac/],
    [['tts', 'Hi', '-o', 'a.aac', '--format', 'aac', '--split', '--dry-run'], /cannot join aac/],
    [
      ['tts', 'Hi', '-o', 'a.mp3', '--split', '--set', 'req_params.ssml=<speak>Hi</speak>'],
      /cannot split req_params\.ssml/,
    ],
    [['tts', '--file', '/nowhere/x.txt', '-o', 'a.mp3'], /--file/],
    [['tts', '--file', 'bad.txt', '-o', 'a.mp3'], /--file [^@]\S*bad\.txt is not valid UTF-8/],
  ];

  it('is refused, and nothing is sent', async () => {
    const { user, here, charges, folder } = await bench();
    writeFileSync(join(user.cwd, 'bad.txt'), Buffer.from([0x48, 0xff, 0x69]));
    for (const [args, message] of invalid) {
      const { code, stdout, stderr } = await here(args);
      expect([args, code, stdout + stderr]).toEqual([args, 2, expect.stringMatching(message)]);
    }
    expect([charges(), folder()]).toEqual([0, ['bad.txt']]);
  });

  it('refuses an existing output file unless --force is set', async () => {
    const { user, here, charges } = await bench();
    writeFileSync(join(user.cwd, 'a.mp3'), 'mine');
    expect((await here(['tts', 'Hi', '-o', 'a.mp3', '--json'])).json).toMatchObject({
      exit_code: 10,
      error: { code: 'output_exists', charged: 'no' },
    });
    expect(charges()).toBe(0);
    expect((await here(['tts', 'Hi', '-o', 'a.mp3', '--force'])).code).toBe(0);
  });
});

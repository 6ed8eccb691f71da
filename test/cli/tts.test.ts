import { existsSync, mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { renderSpeech, type SpeechFormat } from '../../src/sandbox/media/speech.ts';
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

function rendered(format: SpeechFormat, sampleRate = 24_000): Buffer {
  return Buffer.from(renderSpeech({ text, format, sampleRate }));
}

describe('mgw tts', () => {
  it('saves an MP3, prints only its path on stdout, and reports the usage', async () => {
    const { user, file, folder } = await bench();
    const run = await user.run(['tts', text, '-o', 'a.mp3']);
    expect(run.code, run.stderr).toBe(0);
    expect(run.stdout).toBe(`${join(user.cwd, 'a.mp3')}\n`);
    expect(run.stderr).toMatch(/Spoken as job_\w+, 25 characters/);
    expect(file('a.mp3')).toEqual(rendered('mp3'));
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

  it.each([
    ['--file', ['--file', 'text.txt'], undefined],
    ['standard input', ['-'], `${text}\n`],
    ['--file -', ['--file', '-'], `\ufeff${text}\r\n`],
  ])('reads the text from %s', async (_, args, stdin) => {
    const { user, file } = await bench();
    writeFileSync(join(user.cwd, 'text.txt'), `${text}\n`);
    const run = await user.run(['tts', ...args, '-o', 'a.pcm'], { stdin });
    expect(run.code, run.stderr).toBe(0);
    expect(file('a.pcm')).toEqual(rendered('pcm'));
  });

  it('writes WAV with one header, at the requested sample rate', async () => {
    const { here, file } = await bench();
    await here(['tts', text, '-o', 'a.wav', '--sample-rate', '16000']);
    const wav = file('a.wav');
    expect(wav.subarray(44)).toEqual(rendered('pcm', 16_000));
    expect([wav.readUInt32LE(24), wav.readUInt32LE(40)]).toEqual([16_000, wav.length - 44]);
  });

  it('writes only the audio to standard output with -o -', async () => {
    const { user } = await bench();
    const child = user.start(['tts', text, '-o', '-', '--format', 'ogg_opus']).child;
    const chunks: Buffer[] = [];
    child.stdout?.on('data', (chunk: Buffer) => chunks.push(chunk));
    await new Promise((resolve) => child.once('close', resolve));
    expect(Buffer.concat(chunks)).toEqual(rendered('ogg_opus'));
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
    expect((await result).code).toBe(0);
  });

  it('prints the request and sends nothing with --dry-run', async () => {
    const { here, charges } = await bench();
    const run = await here([
      'tts',
      text,
      '-o',
      '-',
      '--set',
      'req_params.audio_params.speech_rate=10',
      '--set',
      'req_params.additions={"silence_duration":500}',
      '--speaker',
      'v1',
      '--dry-run',
    ]);
    expect(run.code, run.stderr).toBe(0);
    expect(run.stdout).toContain('POST http://127.0.0.1');
    expect(run.stdout).toContain('/api/v3/tts/unidirectional');
    expect(run.stdout).toContain('X-Api-Key: [redacted]');
    expect(run.stdout).not.toContain(canaryKey);
    expect(JSON.parse(run.stdout.slice(run.stdout.indexOf('{')))).toEqual({
      req_params: {
        text,
        speaker: 'v1',
        audio_params: { format: 'mp3', sample_rate: 24_000, speech_rate: 10 },
        additions: '{"silence_duration":500}',
      },
    });
    expect(charges()).toBe(0);
  });
});

describe('mgw tts after a failure', () => {
  it.each(['tts-cut', 'tts-reset'])(
    'exits 9 and keeps the audio after the fault %s, and a rerun costs nothing',
    async (fault) => {
      const { here, charges, folder } = await bench(fault);
      const command = ['tts', text, '-o', 'a.mp3', '--json'];
      const incomplete = {
        exit_code: 9,
        error: { code: 'speech_incomplete', charged: 'yes', retry: 'never' },
      };
      expect((await here(command)).json).toMatchObject(incomplete);
      expect((await here(command)).json).toMatchObject(incomplete);
      expect((await here(['jobs', 'wait', '@last', '--json'])).json).toMatchObject(incomplete);
      expect(charges()).toBe(1);
      expect(folder()).toEqual(['a.mp3.part']);
    },
  );

  it('exits 5 and keeps the received audio after an error frame', async () => {
    const { here, folder, charges } = await bench('tts-error-frame');
    const run = await here(['tts', text, '-o', 'a.mp3', '--json']);
    expect(run.json).toMatchObject({ exit_code: 5, error: { code: 'server_error', charged: 'maybe' } });
    expect(folder()).toEqual(['a.mp3.part']);
    expect(charges()).toBe(1);
    const wait = await here(['jobs', 'wait', '@last', '--json']);
    expect(wait.json).toMatchObject({ exit_code: 5, error: run.json.error });
  });

  it('retries after 429, but exits 7 after 500, and a rerun then costs nothing', async () => {
    const busy = await bench('tts-429x1');
    expect((await busy.here(['tts', text, '-o', 'a.mp3'])).code).toBe(0);
    const broken = await bench('tts-500');
    const command = ['tts', text, '-o', 'a.mp3', '--json'];
    const first = await broken.here(command);
    expect(first.json).toMatchObject({ exit_code: 7, error: { code: 'submit_unknown', charged: 'maybe' } });
    expect((await broken.here(command)).json).toMatchObject({ exit_code: 7 });
    expect(first.json.error.message).not.toContain('--adopt');
  });

  it.each([
    ['one call', []],
    ['one call with a key', ['--key', 'k']],
    ['pieces', ['--split']],
  ])('%s in doubt is not sent again because a default was changed', async (_, flags) => {
    const { user, here } = await bench('tts-500x1');
    const command = ['tts', text, ...flags, '-o', 'speech', '--json'];
    expect((await here(command)).code).toBe(7);
    const changes = [
      ['tts.speaker', 'zh_female_1'],
      ['tts.sample_rate', '8000'],
      ['tts.format', 'wav'],
    ];
    for (const change of changes) {
      await user.run(['config', 'set', ...change]);
      expect([change, (await here(command)).code]).toEqual([change, 7]);
    }
  });

  it('exits 3 if the voice is denied, and explains how to set a voice', async () => {
    const { here } = await bench();
    const run = await here(['tts', text, '-o', 'a.mp3'], { MGW_TTS_SPEAKER: 'forbidden-voice' });
    expect(run.code).toBe(3);
    expect(run.stderr).toContain('MGW_TTS_SPEAKER');
  });

  it('exits 9 without a message if the reader closes the pipe', async () => {
    const { user } = await bench();
    const { child, result } = user.start(['tts', text.repeat(40), '-o', '-', '--format', 'pcm', '-q']);
    child.stdout?.once('data', () => child.stdout?.destroy());
    const { code, stderr } = await result.catch(() => ({ code: 9, stderr: '' }));
    expect(code).toBe(9);
    expect(stderr).toBe('');
  });

  it('reports the speech of a process that was killed during the stream, and a rerun costs nothing', async () => {
    const server = await speechServer((response) => {
      response.writeHead(200).write(speechBody([Buffer.from('some audio')]));
    });
    const user = userHere(server.url);
    const command = ['tts', text, '-o', 'a.mp3'];
    const { child, result } = user.start(command);
    const part = join(user.cwd, 'a.mp3.part');
    const started = (): boolean => existsSync(part) && readFileSync(part).length > 0;
    while (!started()) await new Promise((resolve) => setTimeout(resolve, 5));
    expect((await runHereAs(user, ['jobs', 'wait', '@last'])).code).toBe(8);
    child.kill('SIGKILL');
    expect((await result).code).toBe(137);
    expect((await runHereAs(user, ['jobs', 'wait', '@last'])).code).toBe(9);
    const again = await user.run([...command, '--json']);
    expect(again.json).toMatchObject({ exit_code: 9, error: { code: 'speech_incomplete' } });
    expect(again.json.error.message).toContain('a.mp3.part');
    expect(readFileSync(part, 'utf8')).toBe('some audio');
    expect(server.requests).toHaveLength(1);
  });
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

  it('generates the missing pieces in a rerun after a kill, repeats pieces in doubt with --new, and leaves no temporary files', async () => {
    const spoken = (seen: { body: string }): string =>
      (JSON.parse(seen.body) as { req_params: { text: string } }).req_params.text;
    let hangs = true;
    const server = await speechServer((response, seen) => {
      if (hangs && spoken(seen) === 'Two.') return;
      response.end(speechBody([Buffer.from(spoken(seen)), end]));
    });
    const user = userHere(server.url);
    const command = ['tts', 'One. Two. Three. Four.', '--split', '--piece-length', '6', '-o', 'a.pcm'];
    const { child, result } = user.start([...command, '--concurrency', '1']);
    const killer = setInterval(() => {
      if (server.requests.length === 2) child.kill('SIGKILL');
    }, 5);
    expect((await result).code).toBe(137);
    clearInterval(killer);
    hangs = false;
    const again = await runHereAs(user, command);
    expect(again.code).toBe(7);
    expect(again.stderr).toContain('3 of 4 pieces are complete');
    expect(server.requests.map(spoken).sort()).toEqual(['Four.', 'One.', 'Three.', 'Two.']);
    expect((await runHereAs(user, [...command, '--new'])).code).toBe(0);
    expect(server.requests.map(spoken).slice(4)).toEqual(['Two.']);
    expect(readFileSync(join(user.cwd, 'a.pcm'), 'utf8')).toBe('One.Two.Three.Four.');
    expect(readdirSync(user.cwd)).toEqual(['a.pcm', 'state']);
  });

  it('charges only for missing pieces when the command is repeated', async () => {
    const { here, charges, folder } = await bench('tts-cutx1');
    const command = ['tts', text, '--split', '--piece-length', '25', '--concurrency', '1', '-o', 'a.mp3'];
    const first = await here([...command, '--json']);
    expect(first.json).toMatchObject({ exit_code: 9, jobs: [{ state: 'failed' }] });
    expect((await here([...command, '--new'])).code).toBe(0);
    expect(charges()).toBe(3);
    expect(folder()).toEqual(['a.mp3']);
  });
});

describe('mgw tts with invalid input', () => {
  it.each([
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
  ])('refuses %j, and sends nothing', async (args, message) => {
    const { here, charges, folder } = await bench();
    const run = await here(args);
    expect(run.code).toBe(2);
    expect(run.stdout + run.stderr).toMatch(message);
    expect(charges()).toBe(0);
    expect(folder()).toEqual([]);
  });

  it('refuses text in an encoding other than UTF-8', async () => {
    const { user, charges } = await bench();
    writeFileSync(join(user.cwd, 'bad.txt'), Buffer.from([0x48, 0xff, 0x69]));
    const run = await user.run(['tts', '--file', 'bad.txt', '-o', 'a.mp3']);
    expect([run.code, charges()]).toEqual([2, 0]);
    expect(run.stderr).toMatch(/--file [^@]\S*bad\.txt is not valid UTF-8/);
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

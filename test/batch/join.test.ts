import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { mp3Frames } from '../../src/sandbox/media/mp3.ts';
import { seededRandom, tuneOf } from '../../src/sandbox/media/scene.ts';
import { renderVideo } from '../../src/sandbox/media/video.ts';
import { ffmpeg, ffprobe, hasFfmpeg } from '../sandbox/media/ffmpeg.ts';
import { account, s3Server } from '../store/s3-server.ts';
import type { CliResult } from '../support/cli.ts';
import { onEnd } from '../support/clean-ups.ts';
import { runHereAs } from '../support/one-process.ts';
import { program } from '../support/shell.ts';
import { install } from './story.ts';
import { openScene, type Scene } from './scene.ts';

const seconds = 0.5;

let scene: Scene;
/** The gateway's videos, by prompt. */
let films: Record<string, Uint8Array>;
beforeEach(async () => {
  scene = await openScene();
  films = Object.fromEntries(['s1', 's2', 's3'].map((prompt) => [prompt, filmOf(prompt)]));
  scene.gateway.videoOf = (prompt) => films[prompt] ?? Buffer.alloc(0);
});
afterEach(() => scene.gateway.close());

function filmOf(prompt: string, size = { width: 64, height: 64 }, audio = false): Uint8Array {
  return renderVideo({ prompt, seconds, ...size, audio });
}

/** Returns a CSV manifest of video and speech rows. Each id is also the row's prompt or text. */
function rows(...given: [id: string, over?: string, format?: string][]): string {
  const lines = given.map(([id, over, format = 'mp3']) =>
    over === undefined
      ? `${id},a,veo-3,4,720p,true,${id},,,`
      : `${id},tts,,,,,,${id},${over},${format === '' ? '' : format}`,
  );
  return ['id,protocol,model,duration,resolution,audio,prompt,text,over,format', ...lines, ''].join('\n');
}

function join(file: string, ...args: string[]): Promise<CliResult> {
  return runHereAs(scene.user, ['batch', 'join', file, '-o', scene.at('film.mp4'), ...args]);
}

function film(): Buffer {
  return readFileSync(scene.at('film.mp4'));
}

/** Returns the loudest sample in each half second of the film. */
function loudness(): number[] {
  const { output } = ffmpeg(film(), [], ['-vn', '-ac', '1', '-ar', '8000', '-f', 's16le']);
  const samples = new Int16Array(output.buffer, output.byteOffset, output.length / 2);
  return Array.from({ length: Math.floor(samples.length / (8000 * seconds)) }, (_, part) =>
    Math.max(...samples.subarray(part * 4000 + 400, (part + 1) * 4000 - 400)),
  );
}

/** Returns ffmpeg's warnings about a film, and each frame's hash. */
function decode(media: Uint8Array): { complaints: string; frames: string[] } {
  const { complaints, output } = ffmpeg(media, [], ['-an', '-f', 'framemd5']);
  return { complaints, frames: output.toString().match(/[\da-f]{32}$/gm) ?? [] };
}

/** Makes the gateway return speech that is as long as a clip. */
function speak(): void {
  scene.gateway.audio = Buffer.concat([...mp3Frames(tuneOf(seededRandom(1), seconds), 48_000)]);
}

function leftovers(): string[] {
  return readdirSync(scene.user.cwd).filter((name) => name.startsWith('film'));
}

async function ran(...given: Parameters<typeof rows>): Promise<string> {
  const file = scene.file('m.csv', rows(...given));
  const { code, stderr } = await scene.batch('run', file);
  expect(code, stderr).toBe(0);
  return file;
}

describe.skipIf(!hasFfmpeg)('mgw batch join with ffmpeg', () => {
  it('joins clips of the same format in the order of the rows, overlays speech on a clip, and does not call the gateway', async () => {
    speak();
    const file = await ran(['n1', 's1'], ['s2'], ['s1']);
    const { gateway } = scene;
    const requests = gateway.requests.length;
    const result = await join(file, '--json');
    expect(result.code, result.stderr).toBe(0);
    expect(result.json).toMatchObject({
      film: { path: scene.at('film.mp4'), bytes: film().length, is_copied: true },
      clips: [{ id: 's2' }, { id: 's1' }],
    });
    expect(gateway.requests).toHaveLength(requests);
    const decoded = decode(film());
    const clips = ['s2', 's1'].map((id) => decode(films[id] ?? film()).frames);
    expect(decoded).toEqual({ complaints: '', frames: clips.flat() });
    expect(new Set(clips.map(([first]) => first)).size).toBe(2);
    const [before = 1, own = 0] = loudness();
    expect([before < 300, own > 1000]).toEqual([true, true]);
    expect(leftovers()).toEqual(['film.mp4']);
  });

  it('joins clips whose sound is longer than their picture', async () => {
    const source = ['-f', 'lavfi', '-i', 'testsrc=s=64x64:r=24:d=2', '-f', 'lavfi', '-i', 'sine=d=2'];
    const path = scene.at('source.mp4');
    execFileSync('ffmpeg', ['-v', 'error', ...source, '-pix_fmt', 'yuv420p', path]);
    films = { s1: readFileSync(path), s2: readFileSync(path) };
    const result = await join(await ran(['s1'], ['s2']), '--json');
    expect(result.code, result.stderr).toBe(0);
    expect(result.json).toMatchObject({ film: { is_copied: true } });
    expect(decode(film()).frames).toHaveLength(96);
  });

  it("re-encodes clips of other sizes to the first clip's size, adds silence or speech to clips without sound, and mixes raw PCM with a clip's sound", async () => {
    films['s2'] = filmOf('s2', { width: 96, height: 48 }, true);
    speak();
    const file = await ran(['s1'], ['s2'], ['s3'], ['n1', 's3'], ['n2', 's2', 'pcm']);
    const result = await join(file, '--json');
    expect([result.code, result.stderr]).toEqual([0, expect.stringContaining('s2 differs from s1')]);
    expect(result.json['film']).toMatchObject({ is_copied: false });
    const { stream } = ffprobe(film(), ['width', 'height', 'nb_read_frames']);
    expect(stream).toMatchObject({ width: 64, height: 64, nb_read_frames: '36' });
    const [silence = 1, mixed = 0, speech = 0] = loudness();
    expect([silence < 300, mixed > 1000, speech > 1000]).toEqual([true, true, true]);
  });
});

describe('mgw batch join', () => {
  // Replaces ffmpeg and ffprobe with scripts that concatenate the clips and report the size in bytes as the duration.
  beforeEach(() =>
    install(scene, {
      ffmpeg: `for out; do :; done
[ "$out" = -version ] && exit
sed -n "s/^file 'file:\\(.*\\)'$/\\1/p" | while read -r path; do cat "$path"; done >"\${out#file:}"`,
      ffprobe: `for path; do :; done
printf '{"streams":[{"codec_type":"video"}],"format":{"duration":"%d"}}' "$(wc -c <"\${path#file:}")"`,
    }),
  );

  const filmFrom = (...ids: string[]): Buffer => Buffer.concat(ids.map((id) => films[id] ?? Buffer.alloc(0)));

  it('overwrites a file only with --force, and never overwrites a clip', async () => {
    const file = await ran(['s1'], ['s2']);
    writeFileSync(scene.at('film.mp4'), 'mine');
    expect((await join(file)).code).toBe(10);
    expect(film().toString()).toBe('mine');
    expect((await join(file, '--force')).code).toBe(0);
    expect(film()).toEqual(filmFrom('s1', 's2'));
    symlinkSync(scene.at('.'), scene.at('link'));
    for (const path of ['s1.mp4', 'link/s1.mp4', 's1.mp4']) {
      const over = await runHereAs(scene.user, ['batch', 'join', file, '-o', scene.at(path), '--force']);
      expect([over.code, over.stderr]).toEqual([2, expect.stringContaining('an output file of row s1')]);
      expect(readFileSync(scene.at('s1.mp4'))).toEqual(Buffer.from(films['s1'] ?? ''));
      // A later take does not make the first one free.
      if (path === 'link/s1.mp4') await scene.batch('retry', file, '--id', 's1');
    }
  });

  it('never overwrites the second video of a row, or the path of a missing video', async () => {
    const columns = 'id,protocol,model,duration,resolution,prompt,sample-count';
    const file = scene.file('m.csv', `${columns}\ns1,a,veo-3,4,720p,s1,2\ns2,a,veo-3,4,720p,s2,1\n`);
    expect((await scene.batch('run', file)).code).toBe(0);
    rmSync(scene.at('s2.mp4'));
    for (const path of ['s1-2.mp4', 's2.mp4']) {
      const args = ['batch', 'join', file, '-o', scene.at(path), '--force', '--skip-missing'];
      const over = await runHereAs(scene.user, args);
      expect([over.code, over.stderr]).toEqual([2, expect.stringContaining('an output file of row s')]);
    }
  });

  it('lists unfinished rows and writes nothing unless --skip-missing is given', async () => {
    scene.gateway.judge = (prompt) => (prompt === 's2' || prompt === 'n3' ? { kind: 'refuse' } : undefined);
    const file = scene.file('m.csv', rows(['s1'], ['s2'], ['s3'], ['n2', 's2'], ['n3', 's3']));
    expect(await scene.batch('run', file)).toMatchObject({ code: 11 });
    const result = await join(file, '--json');
    expect([result.code, result.json]).toMatchObject([
      11,
      { film: null, missing: [{ id: 's2' }, { id: 'n3' }] },
    ]);
    expect(result.stderr).toMatch(/Missing: s2 \(line 3\), state rejected.*\n.*n3 .*\n.*\n.*batch run/);
    expect(leftovers()).toEqual([]);
    expect((await join(file, '--skip-missing')).code).toBe(0);
    expect(film()).toEqual(filmFrom('s1', 's3'));
  });

  it('uses the paid video of a row whose retake was refused, without a reachable gateway', async () => {
    const file = await ran(['s1'], ['s2']);
    scene.gateway.judge = () => ({ kind: 'refuse' });
    expect(await scene.batch('retry', file, '--id', 's2')).toMatchObject({ code: 11 });
    await scene.gateway.close();
    const result = await join(file);
    expect([result.code, result.stdout]).toEqual([0, `${scene.at('film.mp4')}\n`]);
    expect(film()).toEqual(filmFrom('s1', 's2'));
  });

  it('suggests a command that saves a video again if its file has changed or is missing', async () => {
    const file = await ran(['s1'], ['s2']);
    for (const change of [
      () => writeFileSync(scene.at('s1.mp4'), 'mine'),
      () => rmSync(scene.at('s1.mp4')),
    ]) {
      change();
      expect(await runHereAs(scene.user, ['batch', 'status', file])).toMatchObject({
        stdout: expect.stringContaining('s1 running') as string,
      });
      const { code, json, stderr } = await join(file, '--json');
      expect([code, json]).toMatchObject([11, { film: null, missing: [{ id: 's1', state: 'running' }] }]);
      expect(stderr).toContain('Missing: s1 (line 2), state running');
      const next = json['next'] as string[];
      expect(await runHereAs(scene.user, next.slice(1))).toMatchObject({ code: 0 });
      expect(await join(file, '--force'), next.join(' ')).toMatchObject({ code: 0 });
    }
    expect(scene.gateway.posts()).toHaveLength(2);
  });

  it('suggests a paid retry for speech whose file is gone', async () => {
    const file = await ran(['s1'], ['n1', 's1']);
    rmSync(scene.at('n1.mp3'));
    const { code, json, stderr } = await join(file, '--json');
    expect([code, json['next']]).toEqual([11, ['mgw', 'batch', 'retry', file, '--id', 'n1']]);
    expect(stderr).toContain('Missing: n1 (line 3), state running: its speech is gone');
    const next = json['next'] as string[];
    expect(await scene.batch(...next.slice(2))).toMatchObject({ code: 0 });
    expect(await join(file)).toMatchObject({ code: 0 });
  });

  it('suggests the same commands for missing rows as batch run', async () => {
    scene.gateway.judge = (prompt) => ({ kind: prompt === 's1' ? 'doom' : 'refuse' });
    const file = scene.file('m.csv', rows(['s1'], ['s2']));
    const commands = (text: string): string[] => text.match(/^→ .*$/gm) ?? [];
    const kept = ['--name', 'story'];
    const run = await runHereAs(scene.user, ['batch', 'run', file, '--poll-interval', '10ms', ...kept]);
    const result = await join(file, '--json', ...kept);
    expect(commands(result.stderr)).toEqual(commands(run.stderr));
    expect(result.json['next']).toEqual(['mgw', 'batch', 'retry', file, ...kept, '--failed']);
  });

  it('treats a file as missing if its content has changed, even if its size has not', async () => {
    const file = await ran(['s1'], ['s2']);
    writeFileSync(scene.at('s2.mp4'), Buffer.alloc(films['s2']?.length ?? 0));
    expect((await join(file, '--json')).json).toMatchObject({ exit_code: 11, missing: [{ id: 's2' }] });
  });

  it('fetches clips that are stored objects', async () => {
    const store = await s3Server();
    Object.assign(scene.user.env, account);
    await runHereAs(scene.user, ['config', 'set', 'store.endpoint', store.url]);
    const file = scene.file('m.csv', rows(['s1'], ['s2']));
    const { code, stderr } = await scene.batch('run', file, '-o', 's3://media/clips/{id}.mp4');
    expect([code, store.objects.size], stderr).toEqual([0, 2]);
    const result = await join(file);
    expect(result.code, result.stderr).toBe(0);
    expect(film()).toEqual(filmFrom('s1', 's2'));
    store.objects.delete('/media/clips/s1.mp4');
    const without = await join(file, '--force', '--json');
    expect(without.json).toMatchObject({ missing: [{ id: 's1' }] });
    const { next } = without.json as unknown as { next: string[] };
    const fetched = await runHereAs(scene.user, next.slice(1));
    expect(fetched.code, fetched.stderr).toBe(0);
    expect((await join(file, '--force')).code).toBe(0);
  });

  it('leaves only files that the next run removes, if it is killed while ffmpeg runs', async () => {
    const file = await ran(['s1'], ['s2']);
    const script =
      'for out; do :; done\ncase "$out" in file:*) echo part > "${out#file:}"; kill -9 $PPID;; esac';
    program(scene.at(''), 'ffmpeg', script);
    const env = { PATH: `${scene.at('')}:${scene.user.env['PATH'] ?? ''}` };
    const killed = await scene.user.run(['batch', 'join', file, '-o', scene.at('film.mp4')], { env });
    expect([killed.code, existsSync(scene.at('film.mp4'))]).toEqual([137, false]);
    expect(leftovers()).not.toEqual([]);
    expect((await join(file)).code).toBe(0);
    expect(leftovers()).toEqual(['film.mp4']);
  });

  it('exits with 2 without ffmpeg, and suggests the package to install', async () => {
    const file = await ran(['s1']);
    vi.stubEnv('PATH', scene.user.cwd);
    onEnd(() => void vi.unstubAllEnvs());
    const { code, stderr } = await join(file);
    expect([code, stderr]).toEqual([2, expect.stringContaining('package ffmpeg')]);
  });

  it('exits with 2 if the output is missing or unsupported', async () => {
    const file = scene.file('m.csv', rows(['s1']));
    for (const args of [[], ['-o', 's3://bucket/film.mp4'], ['-o', 'film.avi']]) {
      const { code, stderr } = await runHereAs(scene.user, ['batch', 'join', file, ...args]);
      expect(code, stderr).toBe(2);
    }
  });
});

describe('the manifest field `over`', () => {
  it('causes `batch plan` to report an error with a line number if no row has that id', async () => {
    const file = scene.file('m.csv', rows(['s1'], ['n1', 's2']));
    const plan = await scene.batch('plan', file);
    expect([plan.code, plan.stderr]).toEqual([2, expect.stringMatching(/:3: over: no row has the id s2/)]);
  });

  it('causes `batch join` to report an error if it refers to a speech row', async () => {
    const file = scene.file('m.csv', rows(['s1'], ['n1', 's1'], ['n2', 'n1']));
    const result = await join(file);
    expect([result.code, result.stderr]).toEqual([2, expect.stringMatching(/line 4: over: n1 is not a row/)]);
  });
});

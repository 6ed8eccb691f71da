import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { startSandbox } from '../../src/sandbox/server.ts';
import { onEnd } from '../support/clean-ups.ts';
import { userHere } from '../support/one-process.ts';
import { runOnScreen } from '../support/screen.ts';
import { freshFolder } from '../support/servers.ts';
import { buildStorm } from '../storm/build.ts';
import { Workers } from '../storm/workers.ts';

const mismatches = [
  { field: 'duration', asked: 4, delivered: 2 },
  { field: 'resolution', asked: '720p', delivered: '640x360' },
  { field: 'audio', asked: true, delivered: false },
];

it('--strict exits with 9 and keeps a file that differs from its request, and repeating the command costs nothing', async () => {
  const stateDir = freshFolder();
  const faults = ['short-videox1', 'small-videox1', 'silent-videox1'];
  const sandbox = await startSandbox({ stateDir, paceMs: 60, faults });
  onEnd(() => sandbox.close());
  const user = userHere(undefined, { MGW_SANDBOX: sandbox.url });
  const submit = (prompt: string, name: string): string[] => [
    ...['video', 'a', 'submit', prompt, '-m', 'video-a', '-d', '4', '--resolution', '720p', '--audio'],
    ...['-o', name, '--sidecar', '--strict', '--json'],
  ];
  const delivered = { duration: 2, width: 640, height: 360, fps: 24, audio: false };
  for (let run = 1; run <= 2; run++) {
    const { code, json, stderr } = await user.run(submit('a boat', 'boat.mp4'));
    expect([code, json['error']]).toEqual([
      9,
      expect.objectContaining({ code: 'result_corrupt', charged: 'yes' }),
    ]);
    expect(json['job']).toMatchObject({ files: [{ delivered, mismatches }] });
    expect(stderr).not.toContain('differs from the request');
  }
  const lenient = submit('a boat', 'boat.mp4').filter((word) => word !== '--strict');
  expect((await user.run(lenient)).code).toBe(0);
  expect(readBill(stateDir)).toHaveLength(1);
  expect(readFileSync(join(user.cwd, 'boat.mp4')).toString('latin1', 4, 8)).toBe('ftyp');
  const sidecar = JSON.parse(readFileSync(join(user.cwd, 'boat.mp4.json'), 'utf8')) as object;
  expect(sidecar).toMatchObject({ file: { delivered, mismatches } });

  expect((await user.run(submit('a ship', 'ship.mp4'))).code).toBe(0);
  const { stdout } = await user.run(['jobs', 'ls', '-q', '--mismatched']);
  const [id = ''] = stdout.trim().split('\n');
  expect((await user.run(['jobs', 'show', id, '--json'])).json['job']).toMatchObject({
    files: [{ mismatches }],
  });
  expect(stdout.trim().split('\n')).toHaveLength(1);
  expect((await user.run(['spend', '--disputed', '--since', '1d', '--json'])).json['disputed']).toEqual([
    expect.objectContaining({ job: id, price: '48', delivered, mismatches }),
  ]);
  const evidence = (await user.run(['spend', '--disputed'])).stdout;
  expect(evidence).toMatch(/^price +48 credits$/m);
  expect(evidence).toMatch(/^duration +requested 4, delivered 2$/m);
  expect(evidence).toMatch(/^delivered +2 s, 640x360, 24 fps, no sound$/m);
  const narrow = (await runOnScreen(['spend', '--disputed'], user.env, 40)).stdout;
  expect(narrow.split('\n').filter((line) => line.length > 40)).toEqual([]);
  const copied = await user.run(['jobs', 'fetch', id, '-o', 'copy.mp4', '--strict']);
  expect([copied.code, copied.stderr.split('differs from the request')]).toEqual([
    9,
    [expect.any(String), expect.any(String)],
  ]);
  const piped = await user.run(['jobs', 'fetch', id, '-o', '-', '--strict']);
  expect([piped.code, piped.stderr]).toEqual([9, expect.stringContaining('The video differs')]);
  expect(piped.stderr).not.toMatch(/kept|result\.mp4/);
  expect((await user.run(['jobs', 'fetch', id, '-o', 'other.mp4'])).code).toBe(0);
  expect((await user.run(['jobs', 'fetch', id, '-o', 'marked.mp4', '--mark'])).code).toBe(0);
  // Both files were saved from the same result, so they count as one dispute.
  expect((await user.run(['spend', '--disputed', '--json'])).json['disputed']).toHaveLength(1);
  expect(readBill(stateDir)).toHaveLength(2);
});

it('a batch reports each row whose file differs from its request, and with --strict exits with 11 each time without paying again', async () => {
  const stateDir = freshFolder();
  const sandbox = await startSandbox({ stateDir, paceMs: 1, faults: ['short-videox1', 'silent-videox1'] });
  onEnd(() => sandbox.close());
  const user = userHere(undefined, { MGW_SANDBOX: sandbox.url });
  const row = { protocol: 'a', model: 'video-a', duration: 4, audio: true };
  const rows = [
    { id: 'boat', ...row, prompt: 'a boat' },
    { id: 'ship', ...row, prompt: 'a ship' },
  ];
  writeFileSync(join(user.cwd, 'm.jsonl'), rows.map((each) => `${JSON.stringify(each)}\n`).join(''));
  const run = (...more: string[]): ReturnType<typeof user.run> =>
    user.run(['batch', 'run', 'm.jsonl', '--concurrency', '1', '-o', 'clips/{id}.mp4', ...more]);
  const results = join(user.cwd, 'results.jsonl');

  const first = await run('--strict', '--results', results);
  expect(first.code).toBe(11);
  expect(first.stderr).toContain('boat.mp4, duration 2 s instead of 4 s, it has no sound');
  expect(first.stderr).toContain(
    '1 row with a file that differs from the request: mgw jobs ls --mismatched --batch m',
  );
  expect(first.stderr).toMatch(/\nmgw: Some results differ from their requests\. \(exit 11\)\n$/);
  const [boat, ship] = readFileSync(results, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as object);
  const differing = [
    { field: 'duration', asked: 4, delivered: 2 },
    { field: 'audio', asked: true, delivered: false },
  ];
  expect(boat).toMatchObject({
    id: 'boat',
    exit_code: 9,
    error: { code: 'result_corrupt', charged: 'yes' },
    files: [{ delivered: { duration: 2, audio: false }, mismatches: differing }],
  });
  expect(ship).toMatchObject({
    id: 'ship',
    exit_code: 0,
    files: [{ delivered: { duration: 4, audio: true } }],
  });

  const again = await run('--strict', '--json');
  expect(again.code).toBe(11);
  expect(again.json['rows']).toMatchObject([
    { id: 'boat', state: 'done', next: ['mgw', 'jobs', 'show', expect.stringMatching(/^job_/)] },
  ]);
  const calm = await run();
  expect(calm.code).toBe(0);
  expect((await run('--strict')).code).toBe(11);
  // A file that differs from its request does not cause a retry, because a retry costs money.
  await user.run(['batch', 'retry', 'm', '--failed', '--strict']);
  expect(readBill(stateDir)).toHaveLength(2);

  // Only the built program contains the gallery page.
  const made = await user.start(['jobs', 'gallery', '-o', join(user.cwd, 'review/')]).result;
  expect([made.code, made.stderr]).toEqual([0, expect.any(String)]);
  const [, json = ''] =
    /id="data">([^]*?)<\/script>/.exec(readFileSync(join(user.cwd, 'review/index.html'), 'utf8')) ?? [];
  const { items } = JSON.parse(json) as { items: { key: string; files: object[] }[] };
  expect(items.find(({ key }) => key === 'm/boat')?.files).toMatchObject([
    {
      delivered: '2 s, 1280x720, 24 fps, no sound',
      mismatches: ['duration 2 s instead of 4 s', 'it has no sound'],
    },
  ]);
  expect(items.find(({ key }) => key === 'm/ship')?.files[0]).not.toHaveProperty('mismatches');
});

it('with --strict, a retried row whose file differs again is not paid for a third time', async () => {
  const stateDir = freshFolder();
  const sandbox = await startSandbox({ stateDir, paceMs: 1, faults: ['task-failsx1', 'short-video'] });
  onEnd(() => sandbox.close());
  const user = userHere(undefined, { MGW_SANDBOX: sandbox.url });
  const path = join(user.cwd, 'm.jsonl');
  writeFileSync(
    path,
    `${JSON.stringify({ id: 'boat', protocol: 'a', model: 'video-a', duration: 4, prompt: 'a boat' })}\n`,
  );
  expect((await user.run(['batch', 'run', path, '-o', 'clips/{id}.mp4', '--strict'])).code).toBe(11);
  const retry = await user.run(['batch', 'retry', path, '--id', 'boat', '--strict']);
  expect([retry.code, readBill(stateDir).length]).toEqual([11, 2]);
});

it('--strict requires an output file, because mgw measures the file', async () => {
  const user = userHere(undefined, { MGW_SANDBOX: '1' });
  const { code, json } = await user.run('video a submit boat -m video-a --strict --json'.split(' '));
  expect([code, (json['error'] as { message: string }).message]).toEqual([
    2,
    expect.stringContaining('-o FILE'),
  ]);
});

it('--mark adds a mark to a file once, records both hashes, and does not pay again', async () => {
  const stateDir = freshFolder();
  const sandbox = await startSandbox({ stateDir, paceMs: 1 });
  onEnd(() => sandbox.close());
  const user = userHere(undefined, { MGW_SANDBOX: sandbox.url });
  const submit = ['video', 'a', 'submit', 'a boat', '-m', 'video-a', '-d', '4', '--key', 'k', '--json'];
  const read = (name: string): Buffer => readFileSync(join(user.cwd, name));
  const made = await user.run([...submit, '--mark', '--sidecar', '-o', 'boat.mp4']);
  const hash = /^[0-9a-f]{64}$/;
  const file = { provenance: ['xmp'], unmarked_sha256: expect.stringMatching(hash) as string };
  expect(made.json['job']).toMatchObject({ files: [file] });
  expect(JSON.parse(read('boat.mp4.json').toString())).toMatchObject({ file });
  expect((await user.run(['jobs', 'show', '@k'])).stdout).toMatch(/"provenance": \[\s+"xmp"/);
  const marked = read('boat.mp4');

  expect((await user.run([...submit, '--mark', '-o', 'boat.mp4'])).code).toBe(0);
  expect((await user.run(['jobs', 'fetch', '@k', '--mark', '-o', 'boat.mp4'])).stderr).not.toContain(
    '--mark',
  );
  expect((await user.run(['jobs', 'fetch', '@k', '--mark', '-o', 'copy.mp4'])).code).toBe(0);
  expect((await user.run(['jobs', 'fetch', '@k', '-o', 'plain.mp4'])).code).toBe(0);
  expect([read('boat.mp4').equals(marked), read('copy.mp4').equals(marked)]).toEqual([true, true]);
  const plain = read('plain.mp4');
  expect(marked.subarray(0, plain.length).equals(plain)).toBe(true);
  const late = await user.run(['jobs', 'fetch', '@k', '--mark', '-o', 'plain.mp4']);
  expect([late.code, late.stderr]).toEqual([0, expect.stringContaining('already saved')]);
  const piped = await user.run(['jobs', 'fetch', '@k', '--mark', '-o', '-']);
  expect(piped.stderr).toContain('--mark does not apply to standard output');
  expect(readdirSync(user.cwd).filter((name) => name.includes('.part'))).toEqual([]);
  expect(readBill(stateDir)).toHaveLength(1);
});

it('tts --mark adds a mark to an MP3 once, and records both hashes', async () => {
  const stateDir = freshFolder();
  const sandbox = await startSandbox({ stateDir });
  onEnd(() => sandbox.close());
  const user = userHere(undefined, { MGW_SANDBOX: sandbox.url });
  const read = (name: string): Buffer => readFileSync(join(user.cwd, name));
  const speak = ['tts', 'Hello. There.', '--key', 'k', '--mark', '--json', '-o', 'a.mp3'];
  const made = await user.run([...speak, '--sidecar']);
  const file = { unmarked_sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as string };
  expect(made.json['job']).toMatchObject({ files: [file] });
  expect(JSON.parse(read('a.mp3.json').toString())).toMatchObject({ file });
  const marked = read('a.mp3');
  expect((await user.run(speak)).code).toBe(0);
  expect((await user.run(['jobs', 'fetch', '@k', '--mark', '-o', 'copy.mp3'])).code).toBe(0);
  expect([read('a.mp3').equals(marked), read('copy.mp3').equals(marked)]).toEqual([true, true]);

  // A user's own file may be called `p.part`. mgw moves and removes only its own temporary files.
  const plain = ['tts', 'Hello. There.', '--key', 'p', '--format', 'mp3', '-o', 'p.part'];
  expect((await user.run(plain)).code).toBe(0);
  const unmarked_sha256 = createHash('sha256').update(read('p.part')).digest('hex');
  expect(made.json['job']).toMatchObject({ files: [{ unmarked_sha256 }] });
  for (let run = 1; run <= 2; run += 1)
    expect((await user.run(['jobs', 'fetch', '@p', '--mark', '-o', 'late.mp3'])).code).toBe(0);
  expect(read('late.mp3').equals(marked)).toBe(true);
  const standing = await user.run(['jobs', 'fetch', '@p', '--mark', '-o', 'p.part']);
  expect(standing.stderr).toContain('already saved');

  const split = ['tts', 'Hello. There.', '--split', '--piece-length', '8', '--mark', '-o', 'split.mp3'];
  const { json } = await user.run([...split, '--json']);
  expect([json['jobs'], json['files']]).toMatchObject([[{}, {}], [file]]);
  expect(readdirSync(user.cwd).filter((name) => /\.(part|pieces)/.test(name))).toEqual(['p.part']);
  expect(readBill(stateDir)).toHaveLength(4);
});

it('kill -9 during marking and publishing leaves a complete file or none, and the repeated command costs nothing', async () => {
  const stateDir = freshFolder();
  const sandbox = await startSandbox({ stateDir, paceMs: 1 });
  onEnd(() => sandbox.close());
  const user = userHere(undefined, { MGW_SANDBOX: sandbox.url });
  const { worker } = await buildStorm();
  const workers = new Workers(worker, user.cwd);
  onEnd(() => workers.close());
  const video = ['video', 'a', 'submit', '-m', 'video-a', '-d', '4', '--resolution', '720p', '--mark'];
  let kills = 0;
  // Kills the process at every tenth disk operation. The first fifty operations precede the download.
  for (let at = 50; ; at += 10) {
    const name = `boat-${at}`;
    const args = [...video, name, '--key', name, '-o', join(user.cwd, `${name}.mp4`)];
    const { code } = await workers.run({ args, env: user.env, crash: { at, how: 'killed' } });
    if (code !== 137) break;
    kills += 1;
    const again = await user.run(args);
    expect(again.code, again.stderr).toBe(0);
    const text = readFileSync(join(user.cwd, `${name}.mp4`)).toString('latin1');
    expect(text.split('trainedAlgorithmicMedia')).toHaveLength(2);
    expect(readdirSync(user.cwd).filter((file) => file.startsWith(name))).toEqual([`${name}.mp4`]);
  }
  expect(kills).toBeGreaterThan(2);
  expect(readBill(stateDir)).toHaveLength(kills + 1);
});

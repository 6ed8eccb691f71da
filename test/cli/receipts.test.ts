import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { startSandbox } from '../../src/sandbox/server.ts';
import { onEnd } from '../support/clean-ups.ts';
import { userHere } from '../support/one-process.ts';
import { freshFolder } from '../support/servers.ts';

const mismatches = [
  { field: 'duration', asked: 4, delivered: 2 },
  { field: 'resolution', asked: '720p', delivered: '640x360' },
  { field: 'audio', asked: true, delivered: false },
];

it('--strict ends with exit 9 and keeps the file, and the same command again pays nothing', async () => {
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
    expect(stderr.includes('differs from the request')).toBe(run === 1);
  }
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
  expect((await user.run(['spend', '--disputed'])).stdout).toMatch(/^duration +asked 4, delivered 2$/m);
  expect((await user.run(['jobs', 'fetch', id, '-o', 'copy.mp4', '--strict'])).code).toBe(9);
  expect((await user.run(['jobs', 'fetch', id, '-o', 'other.mp4'])).code).toBe(0);
  expect(readBill(stateDir)).toHaveLength(2);
});

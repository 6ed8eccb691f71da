import { PassThrough, Readable, Writable } from 'node:stream';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { main } from '../../src/cli/main.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { userHere } from '../support/one-process.ts';
import { readAll } from '../support/read-all.ts';

let gateway: FaultGateway;

beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'c' });
});

afterEach(() => gateway.close());

const sink = new Writable({ write: (_chunk, _encoding, done) => done() });

it.each([
  'video c submit - -m vendor-h3-mini',
  'video c submit -m vendor-h3-mini',
  'video c submit --prompt - -m vendor-h3-mini',
  'video submit --body @- -m vendor-h3-mini',
  'video c status -',
  'tts - -o out.mp3',
  'tts --file - -o out.mp3',
  'responses - -m gpt',
  'api POST /v1/x --body -',
  'jobs wait -',
  'jobs fetch - -o out/',
])('mgw %s exits with 6 and submits nothing if its input has not ended at --timeout', async (words) => {
  const stderr = new PassThrough();
  const { env } = userHere(gateway.url);
  const args = [...words.split(' '), '--timeout', '10ms'];
  const exitCode = await main(args, { stdin: new PassThrough(), stdout: sink, stderr, env });
  const text = `mgw: Standard input did not end within --timeout.
  Nothing was charged. Running it again is safe. (exit 6)
`;
  expect(exitCode).toBe(6);
  expect(String(readAll(stderr)).endsWith(text)).toBe(true);
  expect(gateway.submissions).toEqual([]);
});

it.each(['jobs wait -', 'video c status -'])(
  'mgw %s can be stopped by a signal while it reads REFs',
  async (words) => {
    // Without a listener, SIGTERM ends the process.
    const before = process.listenerCount('SIGTERM');
    let during: number | undefined;
    const stdin = new Readable({
      read() {
        during = process.listenerCount('SIGTERM');
        this.push(null);
      },
    });
    const { env } = userHere(gateway.url);
    expect(await main(words.split(' '), { stdin, stdout: sink, stderr: sink, env })).toBe(0);
    expect(during).toBe(before);
  },
);

import { Readable, Writable } from 'node:stream';
import { expect, it } from 'vitest';
import { readRefs } from '../../src/cli/input.ts';

const sink = new Writable({ write: (_chunk, _encoding, done) => done() });

function io(text: string): Parameters<typeof readRefs>[1] {
  return { stdin: Readable.from([Buffer.from(text)]), stdout: sink, stderr: sink, env: {} };
}

it('a command reads REFs from arguments and standard input, and uses each once', async () => {
  expect(await readRefs(['@last', '-', 'x'], io('a b\nx\n\n'))).toEqual(['@last', 'a', 'b', 'x']);
});

it('a command reads more REFs from standard input than a function call can have arguments', async () => {
  const refs = Array.from({ length: 300_000 }, (_, index) => `job_${index}`);
  expect(await readRefs(['-'], io(refs.join('\n')))).toHaveLength(300_000);
});

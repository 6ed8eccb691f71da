import { Readable, Writable } from 'node:stream';
import { expect, it } from 'vitest';
import { readRefs } from '../../src/cli/input.ts';
import { MgwError } from '../../src/errors.ts';
import { withOutput } from '../../src/flows/next.ts';
import type { Job } from '../../src/job.ts';
import { removedJobError } from '../../src/jobs/errors.ts';
import { startSandbox } from '../../src/sandbox/server.ts';
import { onEnd } from '../support/clean-ups.ts';
import { canaryKey } from '../support/cli.ts';
import { freshFolder } from '../support/fresh-folder.ts';
import { userHere } from '../support/one-process.ts';

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

const job = { id: 'job_1', protocol: 'c', handle: '-abc', state: 'queued', record: { goals: [] } };
const dashedJob = job as unknown as Job;
it("the command that fetches a removed job's handle works if the handle begins with -", async () => {
  const error = removedJobError(new MgwError('local_io', 'gone'), dashedJob);
  const sandbox = await startSandbox({ stateDir: freshFolder(), keys: [canaryKey] });
  onEnd(() => sandbox.close());
  const { next = [] } = withOutput(error, { output: 'boat.mp4', force: true });
  expect(next).toEqual(['mgw', 'video', 'c', 'fetch', '-o', 'boat.mp4', '--force', '--', '-abc']);
  const { code, stderr } = await userHere(sandbox.url).run(next.slice(1));
  expect(code).toBe(9);
  expect(stderr).toContain('No such job: -abc. The gateway does not know that handle');
});

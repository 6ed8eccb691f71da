import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock, type Clock } from '../../src/clock.ts';
import { canaryKey, type User } from '../support/cli.ts';
import { runHere, userHere } from '../support/one-process.ts';
import { film } from '../support/film.ts';
import { runOnScreen } from '../support/screen.ts';
import { FaultGateway, reply } from '../faults/gateway.ts';

const submit = ['video', 'c', 'submit', '--model', 'vendor-h3-mini', '--prompt', 'a paper boat'];
const fast = ['--poll-interval', '50ms'];
const running = { body: { task_id: 'task_0001', status: 'processing' } };

let gateway: FaultGateway;
let user: User;

beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'c' });
  user = userHere(gateway.url);
});

afterEach(() => gateway.close());

describe('a wait for several jobs', () => {
  it('spreads the queries of the jobs over the poll interval', async () => {
    const names = ['one', 'two', 'three'];
    for (const name of names) expect((await user.run([...submit, '--key', name])).code).toBe(0);
    const slept: number[] = [];
    const clock: Clock = { ...systemClock, sleep: (ms) => Promise.resolve(void slept.push(ms)) };
    const args = ['jobs', 'wait', ...names.map((name) => `@${name}`), '--poll-interval', '90ms'];
    expect((await runHere(args, user.env, '', clock)).code).toBe(0);
    expect(slept.slice(0, 3)).toEqual([0, 30, 60]);
  });

  it('that is interrupted is reported once, with one command that resumes all jobs', async () => {
    gateway.polls = 10_000;
    // Each job listens for the signal. Node warns about more than ten listeners.
    const jobs: string[] = [];
    for (let count = 0; count < 12; count += 1) jobs.push((await user.run(submit)).stdout.trim());
    for (const [verb, ...flags] of [['wait'], ['fetch', '-o', 'out/']] as [string, ...string[]][]) {
      const waiting = user.start(['jobs', verb, ...jobs, ...flags, ...fast]);
      await new Promise<void>((resolve) => {
        gateway.always.query = ({ response, path }) => {
          if (path.endsWith(gateway.created.at(-1) ?? '')) resolve();
          reply(response, running);
        };
      });
      waiting.child.kill('SIGINT');
      const run = await waiting.result;
      expect([run.code, run.stdout], run.stderr).toEqual([130, '']);
      expect(run.stderr.match(/Interrupted/g)).toHaveLength(1);
      expect(run.stderr).toContain(`next: mgw jobs ${[verb, ...jobs, ...flags].join(' ')}\n`);
      expect(run.stderr).not.toContain('Warning');
    }
  });
});

describe('a command that waits while its installation is replaced', () => {
  it('still prints its own error and the next command', async () => {
    const installed = join(user.cwd, 'installed');
    for (const part of ['bin', 'dist', 'package.json'])
      cpSync(part, join(installed, part), { recursive: true });
    gateway.always.query = ({ response }) => {
      renameSync(join(installed, 'dist'), join(installed, 'gone'));
      child.kill('SIGINT');
      gateway.always.query = running;
      reply(response, running);
    };
    const args = [join(installed, 'bin/mgw.js'), ...submit, '-o', 'own.mp4', ...fast];
    const child = spawn(process.execPath, args, { cwd: user.cwd, env: user.env });
    let told = '';
    child.stderr.on('data', (bytes: Buffer) => (told += bytes.toString()));
    const [code] = (await once(child, 'close')) as [number];
    expect(code, told).toBe(130);
    expect(told).toMatch(/next: mgw video c fetch job_\w+ -o own\.mp4\n$/);
  });
});

describe('a command whose wait ended', () => {
  it('saves its own file when repeated and costs nothing, regardless of other commands that used its job', async () => {
    gateway.script.query.push({ status: 401 });
    const command = [...submit, '-o', 'own.mp4'];
    expect((await user.run([...command, ...fast])).code).toBe(3);
    expect((await user.run(['jobs', 'wait', '@last', ...fast])).code).toBe(0);
    expect((await user.run(['video', 'c', 'fetch', '@last', '-o', 'other.mp4', ...fast])).code).toBe(0);
    const again = await user.run([...command, ...fast]);
    expect(again.code, again.stderr).toBe(0);
    expect(readFileSync(join(user.cwd, 'own.mp4'))).toEqual(gateway.served.content);
    expect(gateway.created).toHaveLength(1);
    const third = await user.run([...command, '--force', ...fast]);
    expect(third.stderr).toMatch(/second take of job_\w+ \(succeeded, saved as /);
    expect(gateway.created).toHaveLength(2);
  });

  it("quotes the gateway's message if the result is not available yet", async () => {
    const message = 'Task is not completed yet, current status: IN_PROGRESS';
    for (let times = 0; times < 200; times += 1)
      gateway.script.content.push({ status: 400, body: { error: { message } } });
    const late = await user.run([...submit, '-o', 'own.mp4', ...fast, '--timeout', '2s']);
    expect(late.code, late.stderr).toBe(8);
    expect(late.stderr).toContain(`Not ready yet: ${message}.`);
    gateway.script.content.splice(0);
    expect((await user.run([...submit, '-o', 'own.mp4', ...fast])).code).toBe(0);
    expect(gateway.created).toHaveLength(1);
  });

  it('suggests a fetch, not a wait, if the job has succeeded', async () => {
    const message = 'Task is not completed yet, current status: IN_PROGRESS';
    gateway.always.content = { status: 400, body: { error: { message } } };
    await user.run(submit);
    const late = await user.run(['video', 'c', 'fetch', '@last', ...fast, '--timeout', '2s', '--json']);
    expect(late.json).toMatchObject({ exit_code: 8, job: { state: 'succeeded' } });
    expect(late.json.error.next).toEqual(['mgw', 'video', 'c', 'fetch', late.json.job.id]);
  });

  it('continues with a different API key when repeated, and prints a note', async () => {
    gateway.script.query.push({ status: 401 });
    const command = [...submit, '-o', 'own.mp4'];
    expect((await user.run([...command, ...fast])).code).toBe(3);
    const again = await user.run([...command, ...fast], { env: { MGW_API_KEY: 'sk-another-key-1234' } });
    expect(again.code, again.stderr).toBe(0);
    expect(again.stderr).toContain('submitted with a different API key');
    expect(gateway.created).toHaveLength(1);
  });
});

describe('closing standard output early', () => {
  it('leads to exit 9, and the repeated command resumes the job', async () => {
    // The video is larger than a pipe's buffer.
    gateway.served.content = film(1_000_000);
    const bin = resolve('bin/mgw.js');
    const line = `"${process.execPath}" "${bin}" ${submit.map((word) => `'${word}'`).join(' ')} -o - ${fast.join(' ')} | head -c 10; exit \${PIPESTATUS[0]}`;
    const code = await new Promise((done) => {
      execFile('bash', ['--norc', '-c', line], { cwd: user.cwd, env: user.env }, (error) =>
        done(error?.code ?? 0),
      );
    });
    expect(code).toBe(9);
    const again = await user.run([...submit, '-o', '-', ...fast]);
    expect(again.code, again.stderr).toBe(0);
    expect(gateway.created).toHaveLength(1);
  });
});

describe('jobs resolve', () => {
  it('--resubmit -o FILE saves only the video', async () => {
    gateway.script.submit.push({ status: 500 });
    await user.run(submit);
    const again = await user.run(['jobs', 'resolve', '@last', '--resubmit', '-o', 'own.mp4', ...fast]);
    expect(again.code, again.stderr).toBe(0);
    expect(readdirSync(user.cwd)).toEqual(['own.mp4', 'state']);
  });

  it('--resubmit leaves the job in doubt if the gateway rejects the new attempt, and jobs show names that attempt', async () => {
    gateway.script.submit.push({ status: 500 }, { status: 400, body: { error: { message: 'bad prompt' } } });
    expect((await user.run(submit)).code).toBe(7);
    expect((await user.run(['jobs', 'resolve', '@last', '--resubmit'])).code).toBe(7);
    const { stdout } = await user.run(['jobs', 'show', '@last']);
    expect(stdout).toContain('attempt 2: rejected, nothing was charged: bad prompt');
  });

  it("--adopt -o saves the adopted task's result", async () => {
    gateway.script.submit.push({ status: 500 });
    const lost = await user.run([...submit, '-o', 'own.mp4', '--json']);
    await user.run([...submit, '--new']);
    const adopt = ['jobs', 'resolve', lost.json.job.id, '--adopt', 'task_0001', '-o', 'own.mp4'];
    const adopted = await user.run([...adopt, ...fast]);
    expect(adopted.code, adopted.stderr).toBe(0);
    expect(readFileSync(join(user.cwd, 'own.mp4'))).toEqual(gateway.served.content);
  });
});

it('jobs show prints the last response to a submission in doubt, without control characters or the key', async () => {
  const generation = { ref: 'gen-abc-123', note: `\u{1b}[2J ${canaryKey}` };
  const body = { status: 'accepted', pad: 'x'.repeat(900), generation };
  gateway.script.submit.push({ body }, { body: 'y'.repeat(100_000) });
  expect((await user.run(submit)).code).toBe(7);
  const shown = await user.run(['jobs', 'show', '@last']);
  expect(shown.stdout).toContain('the gateway responded with 200\n');
  expect(shown.stdout).toMatch(/"pad":"x{900}","generation":\{"ref":"gen-abc-123"/);
  const { stdout, json } = await user.run(['jobs', 'show', '@last', '--json']);
  const history = json['history'] as { reply?: string }[];
  const reply = history.find((event) => event.reply !== undefined)?.reply;
  expect(JSON.parse(reply ?? '')).toMatchObject({ generation: { ref: 'gen-abc-123' } });
  expect(shown.stdout + stdout).not.toMatch(/\u{1b}|5d41402abc4b/u);
  expect((await user.run([...submit, '--new'])).code).toBe(7);
  expect((await user.run(['jobs', 'show', '@last'])).stdout).toMatch(/\s"?y{4000,4096}…$/m);
});

it('jobs resolve REF -o FILE suggests commands with the same -o, and accepts the answer "nothing was created"', async () => {
  gateway.script.submit.push({ status: 500 });
  const { json } = await user.run([...submit, '-o', 'own.mp4', '--json']);
  const resolving = json.error?.next?.slice(1) ?? [];
  expect(resolving.slice(3)).toEqual(['-o', expect.stringMatching(/own\.mp4$/)]);
  const listed = await user.run([...resolving, '--budget', '5']);
  expect(listed.code).toBe(7);
  const refused = await user.run(['jobs', 'rm', json.job.id, '--json']);
  for (const document of [(await user.run([...resolving, '--json'])).json, refused.json])
    expect(document.job).toMatchObject({ id: json.job.id, state: 'unknown' });
  expect(listed.stderr).toMatch(/--adopt HANDLE -o \S+own\.mp4\n/);
  expect(listed.stderr).toMatch(/--not-created\n/);
  expect(listed.stderr).toMatch(/--resubmit -o \S+own\.mp4 --budget 5\n/);
  const answered = await runOnScreen(resolving, user.env, 80, '2\n');
  expect(answered.code, answered.stderr).toBe(0);
  expect((await user.run(['jobs', 'show', json.job.id, '--json'])).json.job.state).toBe('rejected');
});

describe('jobs export and import', () => {
  it('transfer keys, jobs in doubt and refused jobs to another machine, where commands have the same effect', async () => {
    const other = userHere(gateway.url);
    await user.run([...submit, '--key', 'boat', '-o', 'boat.mp4', ...fast]);
    gateway.script.submit.push({ status: 500 }, { status: 400, body: { error: { message: 'no' } } });
    await user.run([...submit.slice(0, -1), 'lost']);
    await user.run([...submit.slice(0, -1), 'refused']);
    const exported = await user.run(['jobs', 'export']);
    expect(exported.stdout.trim().split('\n')).toHaveLength(3);
    writeFileSync(join(other.cwd, 'jobs.jsonl'), exported.stdout);
    const taken = await other.run(['jobs', 'import', 'jobs.jsonl', '--json']);
    expect(taken.json, taken.stderr).toMatchObject({ ok: true, imported: { length: 3 } });
    const repeated = await other.run(['jobs', 'import', 'jobs.jsonl', '--json']);
    expect(repeated.json).toMatchObject({ ok: true, imported: [], existing: taken.json['imported'] });
    expect(repeated.stderr).toBe('Already recorded here, and therefore unchanged: 3 jobs.\n');
    // Reduces the path to the file name, because the folders differ between the machines.
    const withoutFolders = (text: string): string => text.replace(/"[^"]*boat\.mp4"/g, '"boat.mp4"');
    const again = await other.run(['jobs', 'export']);
    expect(withoutFolders(again.stdout)).toBe(withoutFolders(exported.stdout));
    const posts = gateway.submissions.length;
    expect((await other.run([...submit, '--key', 'boat', '-o', 'boat.mp4', ...fast])).code).toBe(0);
    expect((await other.run([...submit.slice(0, -1), 'another boat', '--key', 'boat'])).code).toBe(2);
    expect((await other.run([...submit.slice(0, -1), 'lost'])).code).toBe(7);
    expect(gateway.submissions).toHaveLength(posts);
  });

  it('transfer jobs through the document of --json, whatever its layout', async () => {
    await user.run([...submit, '--key', 'boat']);
    await user.run([...submit, '--key', 'ship']);
    const { json, stdout } = await user.run(['jobs', 'export', '--json']);
    const ids = (json.jobs as { id: string }[]).map(({ id }) => id);
    for (const document of [stdout, JSON.stringify(json)]) {
      const other = userHere(gateway.url);
      writeFileSync(join(other.cwd, 'jobs.json'), document);
      const imported = await other.run(['jobs', 'import', 'jobs.json', '--json']);
      expect(imported.json, imported.stderr).toMatchObject({ ok: true, imported: ids });
      expect((await other.run(['jobs', 'export'])).stdout).toBe((await user.run(['jobs', 'export'])).stdout);
    }
  });

  it('transfer more than 64 MiB', async () => {
    await user.run([...submit, '--key', 'boat']);
    // Blank lines make the export long.
    const blank = `${' '.repeat(2 ** 12 - 1)}\n`.repeat(2 ** 14);
    writeFileSync(join(user.cwd, 'jobs.jsonl'), blank + (await user.run(['jobs', 'export'])).stdout);
    const other = userHere(gateway.url);
    const imported = await other.run(['jobs', 'import', join(user.cwd, 'jobs.jsonl'), '--json']);
    expect(imported.json, imported.stderr).toMatchObject({ ok: true, imported: { length: 1 } });
  });

  it('leave a key to the job that has it now, if the imported job was removed', async () => {
    const first = await user.run([...submit, '--key', 'boat', '--json']);
    const exported = (await user.run(['jobs', 'export'])).stdout;
    await user.run(['jobs', 'rm', '@boat', '--force']);
    const again = [...submit.slice(0, -1), 'another boat', '--key', 'boat', '--json'];
    const second = await user.run(again);
    const imported = await user.run(['jobs', 'import', '-'], { stdin: exported });
    expect(imported.stdout).toBe(`${first.json.job.id}\n`);
    expect(imported.stderr).toBe(`The key boat still refers to ${second.json.job.id} here.\n`);
    const posts = gateway.submissions.length;
    expect((await user.run(again)).json.job.id).toBe(second.json.job.id);
    expect((await user.run(['jobs', 'show', '@boat', '--json'])).json.job.id).toBe(second.json.job.id);
    expect((await user.run([...submit, '--key', 'boat'])).code).toBe(2);
    expect(gateway.submissions).toHaveLength(posts);
  });

  it('change nothing if they are paid jobs and the ledger is that of the sandbox, or the reverse', async () => {
    await user.run(['--sandbox', ...submit, '--key', 'boat']);
    const exported = (await user.run(['--sandbox', 'jobs', 'export'])).stdout;
    const refused = await user.run(['jobs', 'import', '-', '--json'], { stdin: exported });
    const next = ['mgw', '--sandbox', 'jobs', 'import', '-'];
    expect(refused.json).toMatchObject({ exit_code: 2, error: { charged: 'no', next } });
    expect((await user.run(next.slice(1), { stdin: exported })).code).toBe(0);
    await user.run([...submit, '--key', 'boat']);
    const paid = (await user.run(['jobs', 'export', '@boat'])).stdout;
    expect(await user.run(next.slice(1), { stdin: paid })).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('is not a job of the sandbox. Import it without --sandbox') as string,
    });
    expect([paid.split('\n').length, gateway.submissions.length]).toEqual([2, 1]);
  });

  it('change nothing if one of several jobs is invalid', async () => {
    await user.run([...submit, '--key', 'boat']);
    const exported = (await user.run(['jobs', 'export'])).stdout;
    const other = userHere(gateway.url);
    const refused = await other.run(['jobs', 'import', '-'], { stdin: `${exported}\n{"id":"job_1"}\n` });
    expect([refused.code, refused.stderr]).toEqual([
      2,
      expect.stringContaining('Line 3 is not an exported job: id is missing or malformed.'),
    ]);
    const listed = (await user.run(['jobs', 'ls', '--json'])).stdout;
    expect(await other.run(['jobs', 'import', '-'], { stdin: listed })).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('its events are missing. Export jobs with mgw jobs export.') as string,
    });
    expect((await other.run(['jobs', 'ls', '-q'])).stdout).toBe('');
  });
});

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { canaryKey, type User } from '../support/cli.ts';
import { detail, dialects } from '../faults/dialects.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { userHere } from '../support/one-process.ts';

const model = ['--model', 'Video-B', '--model-version', '2.0'];
const submit = ['video', 'b', 'submit', ...model, '--prompt', 'a paper boat'];
const fast = ['--poll-interval', '10ms'];
const save = [...submit, '-o', 'out.mp4', ...fast, '--json'];
const task = dialects.b.handle(1);

let gateway: FaultGateway;
/** The members of a finished task's `AigcVideoTask` that differ from the defaults. */
let shown: object;
let user: User;

beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'b' });
  shown = {};
  gateway.succeeded = (TaskId) => {
    const FileUrl = `${gateway.filesUrl}/files/${TaskId}.mp4?sign=s3cret`;
    return detail(TaskId, 'FINISH', {
      Output: { FileInfos: [{ FileUrl, MetaData: { Duration: 5.04 } }] },
      ...shown,
    });
  };
  gateway.always.other = { status: 404, body: { error: { message: 'Invalid URL' } } };
  user = userHere(gateway.url);
});

/** Sets the models that the gateway lists. */
function list(...data: object[]): void {
  gateway.always.other = { body: { object: 'list', data } };
}

afterEach(() => gateway.close());

function file(path: string): Buffer {
  return readFileSync(join(user.cwd, path));
}

/** Returns the user's files, without mgw's state. */
function found(): string[] {
  return readdirSync(user.cwd).filter((entry) => entry !== 'state' && entry !== 'config');
}

/** Returns the body of the submission with the given index. */
function sent(index = 0): unknown {
  return JSON.parse(gateway.submissions[index]?.body ?? '');
}

describe('submit -o', () => {
  it('sends the specified request once, and saves the video', async () => {
    const run = await user.run(save);
    expect(run.code, run.stderr).toBe(0);
    expect(file('out.mp4')).toEqual(gateway.served.content);
    expect(found()).toEqual(['out.mp4']);
    expect(gateway.created).toHaveLength(1);
    const calls = gateway.seen.filter(({ method }) => method === 'POST');
    expect(calls.map(({ path, headers }) => `${path} ${String(headers['x-tc-action'])}`)).toEqual([
      '/ CreateAigcVideoTask',
      '/ DescribeTaskDetail',
      '/ DescribeTaskDetail',
    ]);
    for (const { headers } of calls)
      expect(headers).toMatchObject({
        authorization: `Bearer ${canaryKey}`,
        'content-type': 'application/json',
        'x-tc-version': '2018-07-17',
      });
    expect(calls.map(({ body }) => JSON.parse(body) as unknown)).toEqual([
      { ModelName: 'Video-B', ModelVersion: '2.0', Prompt: 'a paper boat' },
      { TaskId: task },
      { TaskId: task },
    ]);
    expect(run.json).toMatchObject({
      ok: true,
      exit_code: 0,
      job: { protocol: 'b', model: 'Video-B', handle: task, state: 'succeeded', native_status: 'FINISH' },
      files: [{ path: join(user.cwd, 'out.mp4'), bytes: gateway.served.content.length, mime: 'video/mp4' }],
    });
    expect(run.json.job['details']).toEqual([{ MetaData: { Duration: 5.04 } }]);
    expect(run.stdout + run.stderr).not.toContain(canaryKey);
  });
});

it('an unknown field is refused if it looks like a typing error, and is otherwise sent with a warning', async () => {
  const slip = [...submit, '--set', 'OutputConfig.Duraton=5'];
  const refused = await user.run(slip);
  expect(refused.stderr).toContain('OutputConfig.Duraton: no such field for Video-B; did you mean');
  const strange = await user.run([...submit, '--set', 'Seed=7', '--new']);
  expect(strange.stderr).toContain('Fields that are not in the specification are sent unchanged: Seed.');
  expect((await user.run([...slip, '--no-check', '--new'])).code).toBe(0);
  expect([sent(0), sent(1)]).toMatchObject([{ Seed: 7 }, { OutputConfig: { Duraton: 5 } }]);
});

describe('the model list', () => {
  const unversioned = ['video', 'b', 'submit', '--prompt', 'x'];
  const many = { id: 'Video-B', model_versions: ['1.0', '2.0'] };
  const one = { id: 'Lite', model_versions: [{ version: '7.1' }] };

  it('does not cause a second payment if it changes before a command is repeated', async () => {
    list(one);
    gateway.script.submit.push({ status: 500 });
    const command = [...unversioned, '--model', 'Lite'];
    expect((await user.run(command)).code).toBe(7);
    const changes = [
      () => list({ ...one, model_versions: ['8.0'] }),
      () => list({ ...one, model_versions: ['7.1', '8.0'] }),
      () => list(many),
      () => (gateway.always.other = { status: 404, body: { error: { message: 'Invalid URL' } } }),
    ];
    for (const [index, change] of changes.entries()) {
      change();
      for (const letter of [['b'], []]) {
        const run = await user.run(['video', ...letter, ...command.slice(2)]);
        expect([index, letter, run.code, run.stderr]).toEqual([index, letter, 7, expect.anything()]);
      }
    }
    expect(gateway.submissions).toHaveLength(1);
    const again = await user.run(['jobs', 'resolve', '@last', '--resubmit']);
    expect(again.code, again.stderr).toBe(0);
    expect(sent(1)).toEqual({ ModelName: 'Lite', ModelVersion: '7.1', Prompt: 'x' });
    expect((await user.run(['jobs', 'ls', '--json'])).json).toMatchObject({ jobs: [{ state: 'queued' }] });
  });

  it('does not affect the rows of a batch that were paid for', async () => {
    list(one);
    const rows = [{ id: 'r', protocol: 'b', model: 'Lite', prompt: 'x' }];
    writeFileSync(join(user.cwd, 'clips.jsonl'), `${JSON.stringify(rows[0])}\n`);
    const command = ['batch', 'run', 'clips.jsonl', '-o', '{id}.mp4', '--timeout', '1s', ...fast];
    gateway.polls = Infinity;
    expect((await user.run(command)).code).toBe(11);
    list(many);
    gateway.polls = 0;
    const run = await user.run(command);
    expect(run.code, run.stderr).toBe(0);
    expect([gateway.submissions.length, found()]).toEqual([1, ['clips.jsonl', 'r.mp4']]);
    writeFileSync(join(user.cwd, 'more.jsonl'), `${JSON.stringify({ ...rows[0], id: 'new' })}\n`);
    expect((await user.run(['batch', 'run', 'more.jsonl', '-o', '{id}.mp4', ...fast])).code).toBe(2);
  });
});

describe('--ext-info @FILE', () => {
  const text = '{"ExtVideoParameters":"{\\"ReturnUsage\\":true}"}';

  it('sends the text of the file', async () => {
    writeFileSync(join(user.cwd, 'ext.json'), `${text}\n`);
    const run = await user.run([...submit, '--ext-info', '@ext.json']);
    expect(run.code, run.stderr).toBe(0);
    expect(sent()).toMatchObject({ ExtInfo: text });
  });

  it('refuses a file that is not valid UTF-8, or not valid as ExtInfo', async () => {
    writeFileSync(join(user.cwd, 'latin.json'), Buffer.from([0x7b, 0xe9, 0x7d]));
    writeFileSync(join(user.cwd, 'plain.json'), '{"ReturnUsage":true}');
    for (const name of ['latin.json', 'plain.json']) {
      const run = await user.run([...submit, '--ext-info', `@${name}`]);
      expect(run.code, run.stderr).toBe(2);
      expect(run.stderr).toContain('--ext-info');
    }
    expect(gateway.submissions).toEqual([]);
  });
});

describe('a query of Protocol B', () => {
  it("reports a failure that lists a file, but hides the signature in the file's URL", async () => {
    shown = { ErrCode: 7 };
    const run = await user.run([...submit, '--wait', ...fast]);
    expect(run.code).toBe(5);
    expect(run.stderr).toContain(`${gateway.filesUrl}/files/${task}.mp4`);
    expect(run.stderr).not.toContain('s3cret');
  });
});

describe('the file host', () => {
  it('receives no key, even if it is the gateway or a trusted origin, or requests a key', async () => {
    const files = [{ FileUrl: `${gateway.url}/files/0` }, { FileUrl: `${gateway.filesUrl}/files/1` }];
    shown = { Output: { FileInfos: files } };
    gateway.always.content = { status: 401, body: { error: { message: 'no key' } } };
    const trust = ['--trust-origin', gateway.filesUrl];
    const run = await user.run([...save, ...trust]);
    expect(run.json).toMatchObject({ exit_code: 9, error: { code: 'result_unavailable' } });
    const gets = gateway.seen.filter(({ step }) => step === 'content');
    expect(gets.length).toBeGreaterThanOrEqual(2);
    for (const { headers } of gets) expect(JSON.stringify(headers)).not.toContain(canaryKey);
  });

  it('receives no key after a redirect to the gateway', async () => {
    gateway.script.content.push({ status: 302, headers: { location: `${gateway.url}/elsewhere` } });
    await user.run(save);
    const followed = gateway.seen.filter(({ path }) => path === '/elsewhere');
    expect(followed.map(({ headers }) => headers['authorization'])).toEqual([undefined]);
  });
});

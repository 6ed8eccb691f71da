import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { canaryKey, type CliResult, type User } from '../support/cli.ts';
import { detail, dialects, type Seen } from '../faults/dialects.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { runHereAs, userHere } from '../support/one-process.ts';

const model = ['--model', 'Video-B', '--model-version', '2.0'];
const submit = ['video', 'b', 'submit', ...model, '--prompt', 'a paper boat'];
const fast = ['--poll-interval', '10ms'];
const save = [...submit, '-o', 'out.mp4', ...fast, '--json'];
const task = dialects.b.handle(1);

let gateway: FaultGateway;
/** The members of a finished task's `AigcVideoTask` that differ from the defaults. */
let shown: object;
let user: User;

beforeEach(() => start());

async function start(filesAt?: string): Promise<void> {
  gateway = await FaultGateway.start({ protocol: 'b', filesAt });
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
}

/** Sets the models that the gateway lists. */
function list(...data: object[]): void {
  gateway.always.other = { body: { object: 'list', data } };
}

/** Returns the requests to the file host. None of the requests may contain a key. */
function asked(): Seen[] {
  return gateway.seen.filter(({ headers }) => gateway.filesUrl.endsWith(headers['host'] ?? 'nowhere'));
}

/** Runs the command in this process. The first test of each kind starts a real process. */
function here(args: string[]): Promise<CliResult> {
  return runHereAs(user, args);
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

  it('sends every field at the path, and in the letter case, that the specification defines', async () => {
    const assets = ['--first-frame', 'https://example.com/a.png', '--reference', 'https://example.com/b.png'];
    const output = ['--duration', '5', '--resolution', '720P', '--aspect-ratio', '16:9', '--no-audio'];
    const rest = ['--storage-mode', 'Temporary', '--negative-prompt', 'rain', '--return-usage'];
    const run = await here([...submit, ...assets, ...output, ...rest]);
    expect(run.code, run.stderr).toBe(0);
    expect(sent()).toEqual({
      ModelName: 'Video-B',
      ModelVersion: '2.0',
      Prompt: 'a paper boat',
      NegativePrompt: 'rain',
      FileInfos: [
        { Type: 'Url', Url: 'https://example.com/a.png', Category: 'Image', Usage: 'FirstFrame' },
        { Type: 'Url', Url: 'https://example.com/b.png', Category: 'Image', Usage: 'Reference' },
      ],
      OutputConfig: {
        StorageMode: 'Temporary',
        Resolution: '720P',
        Duration: 5,
        AspectRatio: '16:9',
        AudioGeneration: 'Disabled',
      },
      ExtInfo: '{"ExtVideoParameters":"{\\"ReturnUsage\\":true}"}',
    });
    expect(run.stderr).not.toContain("Using the model's default");
  });

  it('prints the exact request with --dry-run, and sends nothing', async () => {
    const request = (await here([...submit, '--dry-run', '--json'])).json['request'];
    const plain = await here([...submit, '--dry-run']);
    expect(gateway.seen).toEqual([]);
    expect(request).toEqual({
      method: 'POST',
      url: `${gateway.url}/`,
      headers: {
        'content-type': 'application/json',
        'X-TC-Version': '2018-07-17',
        'X-TC-Action': 'CreateAigcVideoTask',
        Authorization: 'Bearer [redacted]',
      },
      body: { ModelName: 'Video-B', ModelVersion: '2.0', Prompt: 'a paper boat' },
    });
    expect(plain.stdout).toContain('X-TC-Action: CreateAigcVideoTask\n');
    expect(JSON.stringify(request) + plain.stdout).not.toContain(canaryKey);
  });

  it.each([
    ['--resolution', '720p'],
    ['--set', 'SubAppId=1'],
    ['--set', 'FileInfos.0.FileId=x'],
    ['--set', 'model_version=2.0'],
    ['--set', 'OutputConfig.Duraton=5'],
    ['--body', '{"Promt":"x"}'],
    ['--ext-info', '{"ExtVideoParameters":{"ReturnUsage":true}}'],
    ['--first-frame', 'http://10.0.0.1/a.png'],
  ])('refuses %s %s before anything is submitted', async (flag, value) => {
    const run = await here([...submit, flag, value]);
    expect(run.code, run.stderr).toBe(2);
    expect(gateway.submissions).toEqual([]);
  });
});

it('an unknown field is refused if it looks like a typo, and is otherwise sent with a warning', async () => {
  const slip = [...submit, '--set', 'OutputConfig.Duraton=5'];
  const refused = await here(slip);
  expect(refused.stderr).toContain('OutputConfig.Duraton: no such field for Video-B; did you mean');
  const strange = await here([...submit, '--set', 'Seed=7', '--new']);
  expect(strange.stderr).toContain('Fields that are not in the specification are sent unchanged: Seed.');
  expect((await here([...slip, '--no-check', '--new'])).code).toBe(0);
  expect([sent(0), sent(1)]).toMatchObject([{ Seed: 7 }, { OutputConfig: { Duraton: 5 } }]);
});

describe('the model list', () => {
  const unversioned = ['video', 'b', 'submit', '--prompt', 'x'];
  const many = { id: 'Video-B', model_versions: ['1.0', '2.0'] };
  const one = { id: 'Lite', model_versions: [{ version: '7.1' }] };

  it.each([
    ['the gateway does not provide it', {}],
    ['the gateway responds with 503', { status: 503 }],
    [
      'the response is an error with HTTP 200',
      { body: { success: false, message: 'get user group failed' } },
    ],
    ['the response is a web page', { body: '<html></html>' }],
  ])('does not block a submission with a model version if %s', async (_, answer) => {
    if ('status' in answer || 'body' in answer) gateway.script.other.push(answer, answer);
    const run = await here(submit);
    expect(run.code, run.stderr).toBe(0);
    expect(run.stderr).toContain('Could not fetch the model list');
    expect(gateway.created).toHaveLength(1);
  });

  it('blocks a submission that needs the list if the key is refused (exit 3)', async () => {
    gateway.script.other.push({ status: 401, body: { error: { message: 'Invalid token' } } });
    const run = await here([...unversioned, '--model', 'Video-B', '--json']);
    expect(run.code, run.stderr).toBe(3);
    expect(run.json.error).toMatchObject({ code: 'auth', charged: 'no' });
    expect(run.json.error.message).toContain('Invalid token');
    expect(gateway.submissions).toEqual([]);
  });

  it.each<[string, object, number]>([
    ['responds with 500', { status: 500 }, 6],
    ['is rate-limited', { status: 429 }, 6],
    ['does not exist', { status: 404 }, 2],
  ])('blocks a submission that needs the list if the endpoint of the list %s', async (_, answer, code) => {
    gateway.script.other.push(answer);
    const run = await here([...unversioned, '--model', 'Video-B', '--retries', '0', '--json']);
    expect(run.code, run.stderr).toBe(code);
    expect(run.json.error).toMatchObject({ charged: 'no', retry: code === 6 ? 'safe' : 'never' });
    expect(run.json.error.message).toContain('--model-version');
    expect(gateway.submissions).toEqual([]);
  });

  it('provides an omitted version if it lists only one', async () => {
    list(many, one);
    const dry = await user.run([...unversioned, '--model', 'Lite', '--dry-run', '--json']);
    expect(dry.json['request']).toMatchObject({ body: { ModelVersion: '7.1' } });
    for (const check of [[], ['--no-check']])
      expect((await user.run([...unversioned, '--model', 'Lite', '--new', ...check])).code).toBe(0);
    expect([sent(0), sent(1)]).toEqual([
      { ModelName: 'Lite', ModelVersion: '7.1', Prompt: 'x' },
      { ModelName: 'Lite', ModelVersion: '7.1', Prompt: 'x' },
    ]);
  });

  it('does not cause a second payment if it changes before a command is repeated', async () => {
    list(one);
    gateway.script.submit.push({ status: 500 });
    const command = [...unversioned, '--model', 'Lite'];
    expect((await here(command)).code).toBe(7);
    const changes = [
      () => list({ ...one, model_versions: ['8.0'] }),
      () => list({ ...one, model_versions: ['7.1', '8.0'] }),
      () => list(many),
      () => (gateway.always.other = { status: 404, body: { error: { message: 'Invalid URL' } } }),
    ];
    for (const [index, change] of changes.entries()) {
      change();
      for (const letter of [['b'], []]) {
        const run = await here(['video', ...letter, ...command.slice(2)]);
        expect([index, letter, run.code, run.stderr]).toEqual([index, letter, 7, expect.anything()]);
      }
    }
    expect(gateway.submissions).toHaveLength(1);
    const again = await here(['jobs', 'resolve', '@last', '--resubmit']);
    expect(again.code, again.stderr).toBe(0);
    expect(sent(1)).toEqual({ ModelName: 'Lite', ModelVersion: '7.1', Prompt: 'x' });
    expect((await here(['jobs', 'ls', '--json'])).json).toMatchObject({ jobs: [{ state: 'queued' }] });
  });

  it('does not affect the rows of a batch that were paid for', async () => {
    list(one);
    const rows = [{ id: 'r', protocol: 'b', model: 'Lite', prompt: 'x' }];
    writeFileSync(join(user.cwd, 'clips.jsonl'), `${JSON.stringify(rows[0])}\n`);
    const command = ['batch', 'run', 'clips.jsonl', '-o', '{id}.mp4', '--timeout', '1s', ...fast];
    gateway.polls = Infinity;
    expect((await here(command)).code).toBe(11);
    list(many);
    gateway.polls = 0;
    const run = await here(command);
    expect(run.code, run.stderr).toBe(0);
    expect([gateway.submissions.length, found()]).toEqual([1, ['clips.jsonl', 'r.mp4']]);
    writeFileSync(join(user.cwd, 'more.jsonl'), `${JSON.stringify({ ...rows[0], id: 'new' })}\n`);
    expect((await here(['batch', 'run', 'more.jsonl', '-o', '{id}.mp4', ...fast])).code).toBe(2);
  });

  it.each([
    ['an omitted version', ['--model', 'Video-B'], /--model-version.*"1.0", "2.0"/],
    ['a version of another model', ['--model', 'Lite', '--model-version', '2.0'], /"2.0".*"7.1"/],
    ['a model in another letter case', ['--model', 'lite', '--model-version', '7.1'], /--model .*Lite/],
  ])(
    'provides the choices that the error lists for %s, and nothing is submitted',
    async (_, flags, choices) => {
      list(many, one);
      const run = await here([...unversioned, ...flags]);
      expect(run.code, run.stderr).toBe(2);
      expect(run.stderr).toMatch(choices);
      expect(gateway.submissions).toEqual([]);
    },
  );

  it('is used only for omitted fields, not for checks, with --no-check', async () => {
    list(many, one);
    const wrong = await here([...unversioned, '--model', 'Lite', '--model-version', '9', '--no-check']);
    expect(wrong.code, wrong.stderr).toBe(0);
    expect(sent()).toEqual({ ModelName: 'Lite', ModelVersion: '9', Prompt: 'x' });
    expect(gateway.seen).toHaveLength(1);
    const Error = { Code: 'InvalidParameterValue', Message: 'ModelVersion is needed' };
    gateway.script.submit.push({ body: { Response: { Error, RequestId: 'r' } } });
    expect((await here([...unversioned, '--model', 'Video-B', '--no-check'])).code).toBe(4);
    expect(sent(1)).toEqual({ ModelName: 'Video-B', Prompt: 'x' });
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

  it.each([
    ['missing', '@none.json'],
    ['a folder', '@.'],
    ['not UTF-8', '@latin.json'],
    ['not valid as ExtInfo', '@plain.json'],
  ])('refuses a file that is %s', async (_, value) => {
    writeFileSync(join(user.cwd, 'latin.json'), Buffer.from([0x7b, 0xe9, 0x7d]));
    writeFileSync(join(user.cwd, 'plain.json'), '{"ReturnUsage":true}');
    const run = await here([...submit, '--ext-info', value]);
    expect(run.code, run.stderr).toBe(2);
    expect(run.stderr).toContain('--ext-info');
    expect(gateway.submissions).toEqual([]);
  });
});

describe('a query of Protocol B', () => {
  it('leads to exit 9 for a task unknown to the gateway, and creates nothing', async () => {
    const run = await here(['video', 'b', 'fetch', '12000000000000000404', '--json']);
    expect(run.json).toMatchObject({ exit_code: 9, error: { code: 'not_found', retry: 'never' } });
    expect(gateway.submissions).toEqual([]);
  });

  it('imports by its id a task that was started elsewhere, and preserves every digit', async () => {
    await here(submit);
    const other = userHere(gateway.url);
    const run = await runHereAs(other, ['video', 'b', 'fetch', task, '-o', 'out.mp4', ...fast]);
    expect(run.code, run.stderr).toBe(0);
    expect(readFileSync(join(other.cwd, 'out.mp4'))).toEqual(gateway.served.content);
    expect(gateway.created).toHaveLength(1);
  });

  it('does not record a success until a query confirms the result', async () => {
    shown = { ErrCode: undefined };
    const unproven = (await here(save)).json;
    expect(unproven).toMatchObject({ exit_code: 9, job: { state: 'running' } });
    expect(unproven.error.message).toContain('without ErrCode 0');
    expect((await here(['video', 'b', 'status', '@last'])).code).toBe(9);
    expect((await here(['jobs', 'wait', '@last', ...fast])).code).toBe(9);
    shown = {};
    expect((await here(save)).json.job.state).toBe('succeeded');
    expect(gateway.created).toHaveLength(1);
    expect(file('out.mp4')).toEqual(gateway.served.content);
  });

  it("reports a failure that lists a file, but hides the signature in the file's URL", async () => {
    shown = { ErrCode: 7 };
    const run = await here([...submit, '--wait', ...fast]);
    expect(run.code).toBe(5);
    expect(run.stderr).toContain(`${gateway.filesUrl}/files/${task}.mp4`);
    expect(run.stderr).not.toContain('s3cret');
  });

  it("includes the usage and the file's details in --json", async () => {
    const FileInfos = [
      { FileUrl: `${gateway.filesUrl}/files/a`, FileType: 'mp4', MetaData: { Duration: 8 } },
    ];
    shown = { Output: { FileInfos, Usage: { OutputSeconds: 8 } } };
    const { job } = (await here(save)).json;
    expect(job['usage']).toEqual({ OutputSeconds: 8 });
    expect(job['details']).toEqual([{ FileType: 'mp4', MetaData: { Duration: 8 } }]);
    shown = { Output: { FileInfos: [{ FileUrl: `${gateway.filesUrl}/files/a` }] } };
    const bare = (await here([...submit, '--new', '--wait', ...fast, '--json'])).json;
    expect(bare.job).not.toHaveProperty('details');
  });
});

describe('the file host', () => {
  it.each([
    ['another origin', '127.0.0.1'],
    ['another host', '127.0.0.2'],
  ])('receives no key in any header if it is on %s', async (_, host) => {
    await gateway.close();
    await start(host);
    const run = await user.run([...submit, '-o', 'out.mp4', ...fast]);
    expect(run.code, run.stderr).toBe(0);
    expect(asked()).toHaveLength(1);
    const [{ headers, path } = { headers: {}, path: '' }] = asked();
    expect(path).toBe(`/files/${task}.mp4?sign=s3cret`);
    expect(Object.keys(headers).sort()).toEqual([
      'accept',
      'accept-encoding',
      'connection',
      'host',
      'user-agent',
    ]);
  });

  it('receives no key, even if it is the gateway or a trusted origin, or requests a key', async () => {
    const files = [{ FileUrl: `${gateway.url}/files/0` }, { FileUrl: `${gateway.filesUrl}/files/1` }];
    shown = { Output: { FileInfos: files } };
    gateway.always.content = { status: 401, body: { error: { message: 'no key' } } };
    const trust = ['--trust-origin', gateway.filesUrl];
    const run = await here([...save, ...trust]);
    expect(run.json).toMatchObject({ exit_code: 9, error: { code: 'result_unavailable' } });
    const gets = gateway.seen.filter(({ step }) => step === 'content');
    expect(gets.length).toBeGreaterThanOrEqual(2);
    for (const { headers } of gets) expect(JSON.stringify(headers)).not.toContain(canaryKey);
  });

  it('receives no key after a redirect to the gateway', async () => {
    gateway.script.content.push({ status: 302, headers: { location: `${gateway.url}/elsewhere` } });
    await here(save);
    const followed = gateway.seen.filter(({ path }) => path === '/elsewhere');
    expect(followed.map(({ headers }) => headers['authorization'])).toEqual([undefined]);
  });

  it('makes the command exit with 9 if it always returns HTTP 401, and the job remains succeeded', async () => {
    gateway.always.content = { status: 401, body: { error: 'expired' } };
    const run = await here(save);
    expect(run.json).toMatchObject({
      exit_code: 9,
      job: { state: 'succeeded' },
      error: { code: 'result_unavailable', charged: 'yes', retry: 'resume' },
    });
    expect(asked().length).toBeLessThan(10);
    delete gateway.always.content;
    expect((await here(save)).code).toBe(0);
    expect(gateway.created).toHaveLength(1);
  });

  it('may serve several files, and mgw numbers them', async () => {
    const FileInfos = [
      { FileUrl: `${gateway.filesUrl}/files/1` },
      { FileUrl: `${gateway.filesUrl}/files/2` },
    ];
    shown = { Output: { FileInfos } };
    expect((await here(save)).code).toBe(0);
    expect(found()).toEqual(['out-1.mp4', 'out-2.mp4']);
  });

  it('makes the command exit with 9 if it has lost one of two files, and the other file is saved', async () => {
    const FileInfos = [{ FileId: 'x' }, { FileUrl: `${gateway.filesUrl}/files/2` }];
    shown = { Output: { FileInfos } };
    const run = await here(save);
    expect(run.json.exit_code).toBe(9);
    expect(run.json.error.message).toMatch(/^1 of 2 files are saved\. /);
    expect(found()).toEqual(['out-2.mp4']);
  });
});

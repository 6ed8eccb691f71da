import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi, type MockInstance } from 'vitest';
import { createClient, MgwError, type Client, type ClientOptions } from '../../src/library/library.ts';
import { renderSpeech } from '../../src/sandbox/media/speech.ts';
import { renderVideo } from '../../src/sandbox/media/video.ts';
import { end } from '../speech/frames.ts';
import { speechServer } from '../speech/harness.ts';
import { onEnd } from '../support/clean-ups.ts';
import { canaryKey, type User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { FaultGateway, type Answer } from '../faults/gateway.ts';
import { account, s3Server } from '../store/s3-server.ts';
import { freshFolder, httpServer } from '../support/servers.ts';

const boat = {
  protocol: 'c',
  body: { model: 'vendor-h3-mini', prompt: 'a paper boat at sea', duration: 6 },
} as const;
const asTyped = ['video', 'c', 'submit', boat.body.prompt, '-m', boat.body.model, '-d', '6'];

let gateway: FaultGateway;
let user: User;
let prints: MockInstance[];

beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'c' });
  onEnd(() => gateway.close());
  user = userHere(gateway.url);
  prints = [process.stdout, process.stderr].map((stream) => vi.spyOn(stream, 'write'));
});

afterEach(() => {
  for (const print of prints) {
    expect(print).not.toHaveBeenCalled();
    print.mockRestore();
  }
});

/** Returns a client with the same gateway, key and ledger as the user's command line. */
function clientOf(options: ClientOptions = {}): Client {
  const client = createClient({ env: user.env, pollInterval: '5ms', ...options });
  onEnd(() => client.close());
  return client;
}

async function errorOf(promise: Promise<unknown>): Promise<MgwError> {
  const error: unknown = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(MgwError);
  return error as MgwError;
}

/** Returns a matcher for text that contains the given substring. */
const saying = (part: string): string => expect.stringContaining(part) as string;

/** Waits for a condition that another process or a server makes true. */
async function until(holds: () => boolean): Promise<void> {
  await vi.waitFor(() => expect(holds()).toBe(true), { timeout: 60_000, interval: 5 });
}

describe('the library: a video', () => {
  it('is submitted, waited for and fetched in separate calls', async () => {
    const client = clientOf();
    const { job, resumed, files } = await client.submit(boat);
    expect({ ...job, resumed, files }).toMatchObject({ protocol: 'c', handle: 'task_0001', resumed: false });
    expect(JSON.parse(gateway.submissions[0]?.body ?? '')).toEqual(boat.body);
    expect(await client.wait(job.id)).toMatchObject({ id: job.id, state: 'succeeded' });
    const output = join(freshFolder(), 'boat.mp4');
    const fetched = await client.fetch('@last', { output });
    expect(fetched).toMatchObject({ job: { id: job.id }, files: [{ path: output, mime: 'video/mp4' }] });
    expect(readFileSync(output)).toEqual(gateway.served.content);
    expect(await client.job(job.id)).not.toHaveProperty('record');
  });

  it('has no undefined members in its job, its files and its error', async () => {
    const client = clientOf();
    const output = join(freshFolder(), 'boat.mp4');
    const { job, files } = await client.submit({ ...boat, output });
    const watched = (await client.watch(job.id).next()).value;
    gateway.script.submit.push({ status: 400, body: { error: { message: 'no' } } });
    const { job: refused } = await errorOf(client.submit({ ...boat, key: 'refused' }));
    const parts = [job, watched, refused, await client.job(job.id), await client.fetch(job.id), ...files];
    for (const part of parts) expect(part).toStrictEqual(JSON.parse(JSON.stringify(part)));
    expect([Object.hasOwn(job, 'error'), refused?.error?.message]).toEqual([false, 'no']);
  });

  it('is waited for and saved in one call, with its sidecar', async () => {
    const output = join(freshFolder(), 'boat.mp4');
    const { job, files } = await clientOf().submit({ ...boat, output, sidecar: true });
    expect(files).toEqual([expect.objectContaining({ path: output })]);
    expect(JSON.parse(readFileSync(`${output}.json`, 'utf8'))).toMatchObject({ job: job.id });
  });

  it('is kept and never paid for again if it differs from its request, but causes an error in strict mode', async () => {
    gateway.served.content = Buffer.from(
      renderVideo({ prompt: 'a boat', seconds: 2, width: 96, height: 64 }),
    );
    const output = join(freshFolder(), 'boat.mp4');
    const order = { ...boat, output, strict: true, mark: true };
    for (const charged of ['yes', 'no'])
      await expect(clientOf().submit(order)).rejects.toMatchObject({
        code: 'result_corrupt',
        exitCode: 9,
        charged,
      });
    expect(gateway.submissions).toHaveLength(1);
    const { files } = await clientOf().job('@last');
    expect(files).toMatchObject([{ mismatches: [{ field: 'duration', asked: 6, delivered: 2 }] }]);
    expect(readFileSync(output).toString('latin1')).toContain('trainedAlgorithmicMedia');
    expect(existsSync(`${output}.json`)).toBe(false);
    await expect(clientOf().fetch('@last', { strict: true })).rejects.toMatchObject({
      code: 'result_corrupt',
    });
  });

  it('can be watched through each change of its state', async () => {
    gateway.polls = 3;
    const client = clientOf();
    const { job } = await client.submit(boat);
    const states: string[] = [];
    for await (const seen of client.watch(job.id)) states.push(seen.state);
    expect(states).toEqual(['queued', 'running', 'succeeded']);
  });

  it('continues after the caller has left the loop that watches it', async () => {
    gateway.polls = Infinity;
    const client = clientOf();
    const { job } = await client.submit(boat);
    for await (const seen of client.watch(job.id)) if (seen.state === 'running') break;
    const requestCount = gateway.seen.length;
    gateway.polls = 0;
    expect(gateway.seen.length).toBe(requestCount);
    expect((await client.wait(job.id)).state).toBe('succeeded');
  });
});

describe('the library: a payment', () => {
  it('throws submit_unknown if its response was lost, and repeated calls do not send a second POST', async () => {
    gateway.script.submit.push(({ response }) => void (gateway.create(), response.destroy()));
    const client = clientOf();
    const error = await errorOf(client.submit(boat));
    expect(error).toMatchObject({ code: 'submit_unknown', exitCode: 7, charged: 'maybe', retry: 'never' });
    expect(error.job).toMatchObject({ state: 'unknown', request: boat.body });
    expect(error.job).not.toHaveProperty('record');
    expect(error.next).toEqual(expect.arrayContaining(['mgw', 'jobs', 'resolve']));
    expect((await errorOf(client.submit(boat))).job?.id).toBe(error.job?.id);
    expect((await errorOf(clientOf().submit({ ...boat, key: 'k' }))).code).toBe('submit_unknown');
    expect(gateway.submissions).toHaveLength(1);
  });

  it('makes a second take if it repeats a successful call, with a note unless the call requests a new take', async () => {
    const notes: string[] = [];
    const client = clientOf({ onNote: (text) => notes.push(text) });
    const first = await client.submit(boat);
    const log = join(user.env['MGW_STATE_DIR'] ?? '', 'jobs', `${first.job.id}.jsonl`);
    expect(readFileSync(log, 'utf8')).toContain('"type":"delivered"');
    const second = await client.submit(boat);
    expect(notes).toContainEqual(saying(`second take of ${first.job.id}`));
    await client.submit({ ...boat, newTake: true });
    expect(second.job.id).not.toBe(first.job.id);
    expect(gateway.submissions).toHaveLength(3);
  });

  it('is for the order as it was when the call was made, even if the program then changes the order', async () => {
    const client = clientOf();
    const [folder, back] = [freshFolder(), process.cwd()];
    const body = { ...boat.body, prompt: '' };
    const order = { protocol: 'c' as const, body, key: '', output: '' };
    const submitted = ['red', 'green', 'blue'].map((colour) => {
      [body.prompt, order.key, order.output] = [`a ${colour} boat`, colour, `${colour}.mp4`];
      process.chdir(folder);
      const call = client.submit(order);
      process.chdir(back);
      return call;
    });
    const jobs = (await Promise.all(submitted)).map(({ job, files }) => ({
      ...job,
      paths: files.map(({ path }) => path),
    }));
    expect(jobs.map(({ key, request, paths }) => ({ key, request, paths }))).toEqual(
      ['red', 'green', 'blue'].map((colour) => ({
        key: colour,
        request: expect.objectContaining({ prompt: `a ${colour} boat` }) as unknown,
        paths: [join(folder, `${colour}.mp4`)],
      })),
    );
  });

  it('is read with the options as they were when the call was made, even if the program then changes them', async () => {
    const client = clientOf();
    const { job } = await client.submit(boat);
    const output = join(freshFolder(), 'boat.mp4');
    const options = { protocol: 'c' };
    const fetchOptions = { ...options, output };
    const watched = client.watch(job.id, options);
    const calls = [client.wait(job.id, options), client.models(options)];
    const fetched = client.fetch(job.id, fetchOptions);
    Object.assign(fetchOptions, { output: join(freshFolder(), 'other.mp4') });
    options.protocol = 'z';
    await Promise.all([...calls, watched.next()]);
    expect(await fetched).toMatchObject({ files: [{ path: output }] });
  });

  it('is not sent if it exceeds its budget', async () => {
    const error = await errorOf(clientOf().submit({ ...boat, budget: '0.50' }));
    expect(error).toMatchObject({ code: 'budget', exitCode: 12, charged: 'no', budget: { limit: '0.5' } });
    expect(gateway.submissions).toHaveLength(0);
  });

  it('is refused if its budget is not a decimal number', async () => {
    const client = clientOf();
    for (const budget of [0.1 + 0.2, 1e-7, Number.NaN, -1, '2,50', ''])
      expect(await errorOf(client.submit({ ...boat, budget }))).toMatchObject({
        code: 'usage',
        charged: 'no',
        message: saying(`budget ${budget}: must be a decimal number`),
      });
    expect(gateway.submissions).toEqual([]);
  });

  it('is refused if the command line would refuse its body, but is sent with check: false', async () => {
    const client = clientOf();
    const typo = { ...boat.body, durration: 6 };
    const error = await errorOf(client.submit({ protocol: 'c', body: typo }));
    expect(error).toMatchObject({
      code: 'usage',
      exitCode: 2,
      message: saying('did you mean duration'),
    });
    expect(gateway.seen).toHaveLength(0);
    await client.submit({ protocol: 'c', body: typo, check: false });
    expect(JSON.parse(gateway.submissions[0]?.body ?? '')).toEqual(typo);
  });

  const invalid: [order: object, message: string][] = [
    [{ ...boat, buget: '2' }, 'unknown option buget. Did you mean budget?'],
    [{ ...boat, key: 'a/b' }, '--key: a/b is not allowed'],
    [{ ...boat, key: 'a', newTake: true }, 'cannot be combined'],
    [{ ...boat, output: '' }, 'output must be a file path'],
    [{ ...boat, output: 'gs://bucket/a.mp4' }, 'output must be a path or s3://BUCKET/KEY.'],
    [{ ...boat, output: '{slug}.mp4' }, 'output: {slug} is not known before the job exists'],
    [{ ...boat, sidecar: true }, 'sidecar requires output'],
    [{ ...boat, timeout: 'soon' }, 'timeout soon: must be'],
    [{ ...boat, protocol: 'd' }, 'Unknown protocol "d"; allowed: a, b, c.'],
    [{ ...boat, body: { ...boat.body, seed: 2n ** 64n } }, 'body: '],
    [{ ...boat, body: { ...boat.body, seed: 2 ** 60 } }, 'would lose precision'],
    [{ ...boat, body: { ...boat.body, duration: NaN } }, 'body: it contains NaN.'],
    [{ ...boat, body: { ...boat.body, sizes: [-Infinity] } }, 'body: it contains -Infinity.'],
    ...['s3://bucket', 's3://bucket/clips/', 's3://bucket/{slug}.mp4'].map((output): [object, string] => [
      { ...boat, output },
      'output',
    ]),
  ];

  it('is not sent if an option is mistyped or invalid', async () => {
    const client = clientOf();
    for (const [order, message] of invalid)
      expect(await errorOf(client.submit(order as never))).toMatchObject({
        ...{ code: 'usage', charged: 'no', message: saying(message) },
      });
    expect(gateway.seen).toHaveLength(0);
  });
});

it('the library saves a video into a folder, named after the job', async () => {
  const parent = freshFolder();
  const { job, files } = await clientOf().submit({ ...boat, output: `${parent}/new/` });
  expect(files).toMatchObject([{ path: join(parent, 'new', `${job.id}.mp4`) }]);
});

describe('the library: an option of the wrong type', () => {
  const calls: [string, (client: Client) => Promise<unknown>, string][] = [
    ['newTake', (client) => client.submit({ ...boat, newTake: 'false' } as never), 'must be true or false'],
    [
      'force',
      (client) => client.speak({ text: 'Hi.', output: 'a.mp3', force: 'false' } as never),
      'must be true or',
    ],
    ['key', (client) => client.submit({ ...boat, key: 5 } as never), 'submit: key must be a string.'],
    ['output', (client) => client.speak({ text: 'Hi.', output: '{id}.mp3' }), 'output: {id} is not known'],
    ['signal', (client) => client.submit({ ...boat, signal: {} } as never), 'signal must be an AbortSignal'],
    [
      'signal',
      (client) => client.watch('@last', { signal: {} } as never).next(),
      'signal must be an AbortSignal',
    ],
    [
      'giveUp',
      (client) => client.speakStream({ text: 'Hi.', giveUp: {} } as never).next(),
      'must be an AbortSignal',
    ],
    ['budget', (client) => client.submit({ ...boat, budget: null } as never), 'must be a string or a number'],
    [
      'params',
      (client) => client.speak({ text: 'Hi.', output: 'a.mp3', params: 'x' } as never),
      'must be an object',
    ],
    [
      'protocol',
      (client) => client.models({ protocol: 'C' }),
      'Unknown protocol "C"; allowed: a, b, c, tts.',
    ],
  ];

  it('causes a usage error, and nothing is sent', async () => {
    const client = clientOf();
    for (const [name, call, message] of calls)
      expect(await errorOf(call(client)), name).toMatchObject({
        ...{ code: 'usage', charged: 'no', message: saying(message) },
      });
    expect(gateway.seen).toHaveLength(0);
  });

  const options: [object, string][] = [
    [{ trustedOrigins: 'https://x.example' }, 'trustedOrigins must be an array of strings'],
    [{ trustedOrigins: [5] }, 'trustedOrigins must be an array of strings'],
    [{ retries: '5' }, 'retries must be a number'],
    [{ onNote: 'print' }, 'onNote must be a function'],
    [{ stateDir: '' }, 'stateDir must be a path'],
    [{ configDir: '' }, 'configDir must be a path'],
  ];

  it('is refused when a client is created', () => {
    for (const [option, message] of options) expect(() => createClient(option)).toThrow(message);
  });
});

describe('the library: an abort', () => {
  it('ends a wait immediately, and the same call resumes the job', async () => {
    gateway.polls = Infinity;
    const client = clientOf({ pollInterval: '1h' });
    const stop = new AbortController();
    const output = join(freshFolder(), 'boat.mp4');
    const waiting = errorOf(client.submit({ ...boat, output, signal: stop.signal }));
    await until(
      () => gateway.submissions.length === 1 && existsSync(join(user.env['MGW_STATE_DIR'] ?? '', 'jobs')),
    );
    await until(() => gateway.created.length === 1);
    stop.abort(new Error('enough'));
    const error = await waiting;
    expect(error).toMatchObject({
      code: 'pending',
      exitCode: 130,
      retry: 'resume',
      cause: new Error('enough'),
    });
    gateway.polls = 0;
    const again = await clientOf().submit({ ...boat, output });
    expect(again).toMatchObject({ resumed: true, job: { id: error.job?.id }, files: [{ path: output }] });
    expect(gateway.submissions).toHaveLength(1);
  });

  it('waits for the response to a payment, and a second abort leaves the job in doubt', async () => {
    const answers: (() => void)[] = [];
    const later: Answer = ({ response }) => {
      answers.push(() => response.end(JSON.stringify({ task_id: gateway.create(), status: 'queued' })));
    };
    gateway.script.submit.push(later, later);
    const stop = new AbortController();
    const first = errorOf(clientOf().submit({ ...boat, signal: stop.signal }));
    await until(() => answers.length === 1);
    stop.abort();
    answers[0]?.();
    expect(await first).toMatchObject({ code: 'pending', charged: 'yes', job: { handle: 'task_0001' } });

    const giveUp = new AbortController();
    const other = { ...boat, body: { ...boat.body, duration: 7 } };
    const second = errorOf(clientOf().submit({ ...other, giveUp: giveUp.signal }));
    await until(() => answers.length === 2);
    giveUp.abort();
    expect(await second).toMatchObject({ code: 'submit_unknown', charged: 'maybe' });
  });

  it('prevents every request if it precedes the call, and a closed client sends no request either', async () => {
    const client = clientOf();
    const error = await errorOf(client.submit({ ...boat, signal: AbortSignal.abort() }));
    expect(error).toMatchObject({ code: 'pending', charged: 'no', retry: 'safe' });
    await client.close();
    expect((await errorOf(client.submit(boat))).code).toBe('usage');
    expect(gateway.seen).toHaveLength(0);
  });

  it('uses one signal for many concurrent calls, without a warning from Node, and closing the client ends a wait too', async () => {
    gateway.polls = Infinity;
    const warned = vi.fn();
    process.on('warning', warned);
    onEnd(() => void process.off('warning', warned));
    const client = clientOf();
    const { job } = await client.submit(boat);
    const stop = new AbortController();
    const waits = Array.from({ length: 20 }, () => errorOf(client.wait(job.id, { signal: stop.signal })));
    await until(() => gateway.seen.length > 20);
    stop.abort();
    for (const error of await Promise.all(waits)) expect(error.exitCode).toBe(130);
    expect(warned).not.toHaveBeenCalled();
    const requestCount = gateway.seen.length;
    const last = errorOf(client.wait(job.id));
    await until(() => gateway.seen.length > requestCount);
    await client.close();
    expect((await last).exitCode).toBe(130);
  });
});

describe('the library and the command line', () => {
  it("share jobs: a command can fetch a program's job, and a program can join a command's job", async () => {
    const client = clientOf();
    const { job } = await client.submit({ ...boat, key: 'shared' });
    const shown = await user.run(['jobs', 'fetch', '@shared', '-o', 'boat.mp4', '--poll-interval', '5ms']);
    expect(shown.stdout).toBe(`${join(user.cwd, 'boat.mp4')}\n`);
    const typed = await user.run([...asTyped, '--key', 'typed', '--json']);
    const { job: own } = await client.submit({ ...boat, key: 'typed', wait: true });
    expect(own.id).toBe(typed.json.job.id);
    expect(own.id).not.toBe(job.id);
    expect(gateway.submissions).toHaveLength(2);
  });

  it('can resume each other: a program resumes a command that timed out, and a command resumes the program', async () => {
    gateway.polls = Infinity;
    const output = join(user.cwd, 'boat.mp4');
    const command = [...asTyped, '-o', output, '--poll-interval', '5ms', '--json'];
    const stopped = await user.run([...command, '--timeout', '500ms']);
    expect(stopped.code).toBe(8);
    const error = await errorOf(clientOf().submit({ ...boat, output, timeout: 100 }));
    expect(error).toMatchObject({ code: 'pending', exitCode: 8, job: { id: stopped.json.job.id } });
    expect(error.next?.slice(3)).toEqual([
      ...['mgw', '--base-url', gateway.url, 'video', 'c', 'fetch', error.job?.id, '-o', output],
    ]);
    gateway.polls = 0;
    const done = await user.run(command);
    expect(done.json.job.id).toBe(stopped.json.job.id);
    expect(gateway.submissions).toHaveLength(1);
  });
});

describe('the library: errors', () => {
  it('contain the cause, the charge and the job', async () => {
    gateway.script.query = [{ body: { status: 'failed', error: { message: 'the model fell over' } } }];
    const error = await errorOf(clientOf().submit({ ...boat, wait: true }));
    expect(error).toMatchObject({
      code: 'task_failed',
      exitCode: 5,
      charged: 'maybe',
      retry: 'never',
      message: saying('the model fell over'),
      job: { state: 'failed', handle: 'task_0001' },
      next: expect.arrayContaining(['mgw', 'jobs', 'show', expect.stringMatching(/^job_/)]) as string[],
    });
  });

  it("suggest a command with the client's gateway, folders and budgets", async () => {
    gateway.script.submit.push(({ response }) => void (gateway.create(), response.destroy()));
    await user.run(['budget', 'set', 'team', '100']);
    const [stateDir, env] = [freshFolder(), { ...user.env, MGW_BASE_URL: undefined }];
    const client = clientOf({
      env,
      stateDir: user.env['MGW_STATE_DIR'],
      baseUrl: gateway.url,
      budgetName: 'team',
    });
    await user.run(['config', 'set', 'prices.c.vendor-h3-mini', 'second=0.1']);
    const { next, job } = await errorOf(client.submit({ ...boat, budget: 2.5 }));
    expect(next).toEqual([
      ...[
        'env',
        `MGW_STATE_DIR=${user.env['MGW_STATE_DIR']}`,
        `MGW_CONFIG_DIR=${user.env['MGW_CONFIG_DIR']}`,
      ],
      ...[
        'mgw',
        '--base-url',
        gateway.url,
        'jobs',
        'resolve',
        job?.id,
        '--budget',
        '2.5',
        '--budget-name',
        'team',
      ],
    ]);
    const sandbox = clientOf({ env: { ...env, MGW_SANDBOX: '1' }, stateDir });
    expect((await errorOf(sandbox.job('@none'))).next).toEqual([
      ...['env', `MGW_STATE_DIR=${stateDir}`, `MGW_CONFIG_DIR=${user.env['MGW_CONFIG_DIR']}`],
      ...['mgw', '--sandbox', 'jobs', 'ls'],
    ]);
  });

  it('report missing settings, unknown options and unknown jobs', async () => {
    const bare = createClient({ env: {}, stateDir: freshFolder(), configDir: freshFolder() });
    expect((await errorOf(bare.submit(boat))).code).toBe('config');
    expect(() => createClient({ baseURL: gateway.url } as ClientOptions)).toThrow('Did you mean baseUrl?');
    expect((await errorOf(clientOf().wait('@nobody'))).code).toBe('usage');
    expect((await errorOf(clientOf().wait(' '))).code).toBe('usage');
    expect((await errorOf(clientOf().submit(undefined as never))).code).toBe('usage');
  });
});

describe('the library: settings', () => {
  it('override the environment if they come from the program, even when a handle is imported', async () => {
    const env = {
      MGW_BASE_URL: 'http://127.0.0.1:9',
      MGW_API_KEY: 'sk-another-key-1234',
      MGW_STATE_DIR: freshFolder(),
    };
    const client = clientOf({ env, baseUrl: gateway.url, apiKey: canaryKey, configDir: freshFolder() });
    gateway.create('task_77');
    const job = await client.wait('task_77', { protocol: 'c' });
    expect(job).toMatchObject({ handle: 'task_77', state: 'succeeded' });
    expect(gateway.seen[0]?.headers['authorization']).toBe(`Bearer ${canaryKey}`);
  });

  it('are those at the creation of the client, even if the program then changes them', async () => {
    const [folder, back] = [freshFolder(), process.cwd()];
    const options = { env: { ...user.env }, stateDir: 'one', trustedOrigins: ['https://one.example'] };
    process.chdir(folder);
    const client = clientOf(options);
    process.chdir(back);
    Object.assign(options, { stateDir: freshFolder() });
    options.env['MGW_BASE_URL'] = 'http://127.0.0.1:9';
    options.trustedOrigins[0] = 'not an origin';
    expect((await client.submit(boat)).resumed).toBe(false);
    expect(existsSync(join(folder, 'one', 'jobs'))).toBe(true);
  });

  it('can select the sandbox, and the sandbox accepts a video offline and lists its models', async () => {
    const client = clientOf({ env: {}, sandbox: true, stateDir: freshFolder(), configDir: freshFolder() });
    const [job, models] = await Promise.all([
      client.submit(boat).then((done) => done.job),
      client.models({ protocol: 'c' }),
    ]);
    expect(job).toMatchObject({ state: 'queued', base_url: 'sandbox' });
    expect(models.map(({ id }) => id)).toContain('vendor-h3-mini');
  });
});

describe('the library: speech', () => {
  const [hello, world] = [Buffer.from('hello, '), Buffer.from('world')];

  async function speaking(...answers: Parameters<typeof speechServer>) {
    const server = await speechServer(...answers);
    return { server, client: clientOf({ baseUrl: server.url }) };
  }

  it('is saved as a file, and repeating the call with its key does not pay again', async () => {
    const { server, client } = await speaking([hello, world, end]);
    const order = { text: 'Hello, world.', output: join(freshFolder(), 'hello.mp3'), key: 'hello' };
    const result = await client.speak(order);
    expect(result).toMatchObject({ file: { path: order.output, bytes: 12 }, resumed: false });
    expect(readFileSync(order.output, 'utf8')).toBe('hello, world');
    expect(await client.speak(order)).toMatchObject({ job: { id: result.job.id }, resumed: true });
    expect(await client.wait(result.job.id)).toMatchObject({ state: 'succeeded' });
    const copy = join(freshFolder(), 'copy.mp3');
    expect((await client.fetch(result.job.id, { output: copy })).files).toMatchObject([
      { path: copy, bytes: 12 },
    ]);
    expect(server.requests).toHaveLength(1);
  });

  it('is saved as an object, and fetched from the bucket', async () => {
    const mp3 = Buffer.from(renderSpeech({ text: 'Hello.', format: 'mp3', sampleRate: 24_000 }));
    const [server, store] = [await speechServer([mp3, end]), await s3Server()];
    const env = { ...user.env, ...account, AWS_ENDPOINT_URL_S3: store.url };
    const client = clientOf({ baseUrl: server.url, env });
    const { job, file } = await client.speak({ text: 'Hello.', output: 's3://bucket/{id}.mp3', mark: true });
    expect(file).toMatchObject({
      path: `s3://bucket/${job.id}.mp3`,
      unmarked_sha256: createHash('sha256').update(mp3).digest('hex'),
    });
    const object = store.objects.get(`/bucket/${job.id}.mp3`) ?? Buffer.alloc(0);
    expect(object.subarray(-mp3.length).equals(mp3)).toBe(true);
    expect(object.toString('latin1')).toContain('trainedAlgorithmicMedia');
    const copy = join(freshFolder(), 'copy.mp3');
    await client.fetch(job.id, { output: copy });
    expect(readFileSync(copy).equals(object)).toBe(true);
  });

  it('is returned as it arrives, before the gateway has sent all of the audio', async () => {
    let sendRest: () => void = () => undefined;
    const { client } = await speaking(async (response) => {
      const { speechBody } = await import('../speech/frames.ts');
      response.writeHead(200);
      response.write(speechBody([hello]));
      sendRest = () => response.end(speechBody([world, end]));
    });
    const order = { text: 'Hello, world.', params: { speaker: 'someone' } };
    const pieces = client.speakStream(order);
    order.params.speaker = 'another';
    expect((await pieces.next()).value).toEqual(hello);
    sendRest();
    expect((await pieces.next()).value).toEqual(world);
    const job = { state: 'succeeded', protocol: 'tts', request: { req_params: { speaker: 'someone' } } };
    expect(await pieces.next()).toMatchObject({ done: true, value: job });
  });

  it('is requested with parameters whose names contain a dot or an equals sign', async () => {
    const { server, client } = await speaking([hello, end]);
    const params = { 'voice.style': 1, 'a=b': 1 };
    await client.speak({ text: 'Hello.', output: join(freshFolder(), 'hello.mp3'), params });
    expect(JSON.parse(server.requests[0]?.body ?? '')).toMatchObject({ req_params: params });
  });

  it('yields the received audio and then throws an error if it breaks off', async () => {
    const { client } = await speaking([hello]);
    const received: Uint8Array[] = [];
    const listen = async (): Promise<void> => {
      for await (const piece of client.speakStream({ text: 'Hello, world.', key: 'hello' }))
        received.push(piece);
    };
    expect(await errorOf(listen())).toMatchObject({
      code: 'speech_incomplete',
      charged: 'yes',
      retry: 'never',
    });
    expect(Buffer.concat(received)).toEqual(hello);
    expect(await errorOf(listen())).toMatchObject({ charged: 'no', retry: 'never', job: { key: 'hello' } });
  });

  it('is silent even if many streams of one client are read at the same time', async () => {
    const warn = vi.spyOn(process, 'emitWarning');
    onEnd(() => warn.mockRestore());
    const { server, client } = await speaking([hello, end]);
    const read = async (text: string): Promise<number> => {
      let size = 0;
      for await (const piece of client.speakStream({ text })) size += piece.length;
      return size;
    };
    const sizes = await Promise.all(Array.from({ length: 12 }, (_, index) => read(`Number ${index}.`)));
    expect(sizes).toEqual(sizes.map(() => hello.length));
    expect(server.requests).toHaveLength(12);
    expect(warn).not.toHaveBeenCalled();
  });

  it('can be abandoned by its reader, or by closing the client inside the loop', async () => {
    const { server, client } = await speaking((response) => {
      response.writeHead(200);
      response.write(`${JSON.stringify({ code: 0, data: hello.toString('base64') })}\n`);
    });
    for await (const piece of client.speakStream({ text: 'One.' })) if (piece.length > 0) break;
    const closing = async (): Promise<void> => {
      for await (const piece of client.speakStream({ text: 'Two.' })) {
        expect(piece).toEqual(hello);
        await client.close();
      }
    };
    expect((await errorOf(closing())).charged).toBe('yes');
    expect(server.requests).toHaveLength(2);
  });
});

describe('the library: an interruption', () => {
  it('ends a request to the store if the client is closed', async () => {
    const store = await s3Server();
    const requested = new Promise<void>((resolve) => store.faults.push(() => resolve()));
    const client = clientOf({ env: { ...user.env, ...account, AWS_ENDPOINT_URL_S3: store.url } });
    const failed = errorOf(client.submit({ ...boat, output: 's3://bucket/boat.mp4' }));
    await requested;
    await client.close();
    expect(await failed).toMatchObject({ exitCode: 130, charged: 'no' });
    expect(gateway.submissions).toEqual([]);
  });

  it.each([
    ['models', (client: Client, signal: AbortSignal) => client.models({ signal })],
    [
      'submit',
      (client: Client, signal: AbortSignal) =>
        client.submit({ ...boat, body: { ...boat.body, model: 'unlisted' }, signal }),
    ],
  ])('ends the request for the models if the signal of %s aborts', async (_, call) => {
    const stop = new AbortController();
    const server = await httpServer(() => stop.abort());
    const failed = errorOf(call(clientOf({ baseUrl: server.url }), stop.signal));
    expect(await failed).toMatchObject({ exitCode: 130, charged: 'no' });
    expect(server.requests).toMatchObject([{ method: 'GET' }]);
  });
});

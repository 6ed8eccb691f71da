import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { systemClock, type Clock } from '../../../src/clock.ts';
import { onEnd } from '../../support/clean-ups.ts';
import type { CliResult, User } from '../../support/cli.ts';
import { CuttingProxy } from '../../support/cutting-proxy.ts';
import { stoppable } from '../../support/test-clock.ts';
import { hurried, runHereAs, userHere } from '../../support/one-process.ts';
import type { BatchGateway } from '../gateway.ts';
import { connect } from '../../mcp/client.ts';
import { account, s3Server } from '../../store/s3-server.ts';
import { clips } from '../scene.ts';
import { parseRow } from '../../../src/batch/fleet/queued-row.ts';
import type { Machines } from './machines.ts';
import { countUnwritten } from '../../../src/ledger/kept-facts.ts';
import { renderVideo } from '../../../src/sandbox/media/video.ts';
import { describeFleet } from './place.ts';

const byExitCode = (one: object, other: object): number => Number('error' in one) - Number('error' in other);

/** A worker in this process. `terminate` sends SIGTERM to this worker only. */
interface Started {
  result: Promise<CliResult>;
  terminate: () => void;
}

/** A promise, and the function that resolves it. */
function signal(): { promise: Promise<void>; resolve: () => void } {
  let resolve = (): void => undefined;
  const promise = new Promise<void>((done) => (resolve = done));
  return { promise, resolve };
}

const quick = ['--poll-interval', '10ms', '--max-idle', '400ms'];

const leasesEnd = 'update mgw.leases set until = clock_timestamp()';
const rowsAreDue = 'update mgw.batch_rows set not_before = null';

// Each pause of a command in this process advances its clock, so the lease must last longer than all pauses together.
describeFleet('in a fleet,', { parameters: 'lease=10m' }, (place) => {
  let gateway: BatchGateway;
  let machines: Machines;
  let here: User;
  /** The path of the manifest that {@link write} writes. */
  let file: string;
  beforeEach(() => {
    ({ gateway, machines } = place);
    here = machines.machine();
    file = join(machines.shared, 'clips.csv');
  });

  const write = (...rows: [id: string, prompt: string][]): void => writeFileSync(file, clips(...rows));
  const batch = (...args: string[]): Promise<CliResult> => runHereAs(here, ['batch', ...args]);
  const work = (...more: string[]): Promise<CliResult> => workOn(machines.machine(), ...more);
  const workOn = (user: User, ...more: string[]): Promise<CliResult> =>
    runHereAs(user, ['worker', ...machines.output, ...quick, ...more]);
  const rowsInQueue = (): Promise<string> =>
    place.query('select id, state from mgw.batch_rows order by position');
  const headInQueue = async (): Promise<unknown> =>
    JSON.parse(await place.query('select head from mgw.batches'));
  const charges = (): Record<string, number> => Object.fromEntries(gateway.charges);
  const priced = (user: User): Promise<CliResult> =>
    runHereAs(user, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);

  /** Starts a worker in this process. */
  const start = (user: User, ...more: string[]): Started => startWith(hurried(), user, ...more);
  function startWith(clock: Clock, user: User, ...more: string[]): Started {
    const others = new Set(process.listeners('SIGTERM'));
    const args = ['worker', ...machines.output, '--poll-interval', '10ms', ...more];
    const result = runHereAs(user, args, '', clock);
    const terminate = (): void => {
      for (const listener of process.listeners('SIGTERM')) if (!others.has(listener)) listener('SIGTERM');
    };
    return { result, terminate };
  }

  it('several workers run the enqueued rows, each row once, without a warning about listeners', async () => {
    const warnings: string[] = [];
    const onWarning = ({ name }: Error): unknown => warnings.push(name);
    process.on('warning', onWarning);
    onEnd(() => void process.off('warning', onWarning));
    file = machines.manifest(16);
    const enqueued = await batch('enqueue', file, '--concurrency', '16', '--json');
    expect([enqueued.code, enqueued.json['enqueued']]).toEqual([0, 16]);
    const workers = await Promise.all([work('--concurrency', '16'), work('--concurrency', '1')]);
    expect(workers.map(({ code }) => code)).toEqual([0, 0]);
    expect([...gateway.charges.values()]).toEqual(Array(16).fill(1));
    for (let n = 0; n < 16; n += 1)
      expect(readFileSync(join(machines.shared, 'out', `row-${n}.mp4`))).toEqual(gateway.video);
    expect(warnings).toEqual([]);
    const status = await batch('status', 'clips');
    expect([status.code, status.stdout]).toEqual([0, expect.stringContaining('done   16')]);
    expect((await batch('enqueue', file, '--json')).json).toMatchObject({
      enqueued: 0,
      known: 16,
      changed: [],
    });
  });

  it('a worker saves to a bucket without a shared folder, and completes uploads of a killed worker', async () => {
    const store = await s3Server();
    const machine = (): User => {
      const user = machines.machine();
      Object.assign(user.env, account, { AWS_ENDPOINT_URL_S3: store.url });
      return user;
    };
    await batch('enqueue', machines.manifest(2));
    const toBucket = ['worker', '-o', 's3://bucket/{name}/{id}.{ext}', '--poll-interval', '10ms'];
    const killed = machine().start([...toBucket, '--concurrency', '1']);
    store.faults.push((request) => {
      if (request.method !== 'PUT') return false;
      // The object is stored, but not recorded.
      killed.child.kill('SIGKILL');
      store.faults.shift();
      return false;
    });
    expect((await killed.result).code).toBe(137);
    await place.query(leasesEnd);
    const last = machine();
    const { code, stderr } = await runHereAs(last, [...toBucket, '--max-idle', '400ms']);
    expect(code, stderr).toBe(0);
    expect([...gateway.charges.values()]).toEqual([1, 1]);
    const objects = [0, 1].map((n) => [`/bucket/clips/row-${n}.mp4`, gateway.video]);
    expect([...store.objects].sort()).toEqual(objects);
    const files = readdirSync(last.cwd, { recursive: true, encoding: 'utf8' });
    expect(files.filter((path) => path.includes('.mp4'))).toEqual([]);
  });

  it('batch enqueue adds no row if a row is invalid or contains the API key, unless --skip-bad is given', async () => {
    write(['good', 'a paper boat'], ['bad', `say ${here.env['MGW_API_KEY'] ?? ''}`]);
    const withKey = await batch('enqueue', file);
    expect([withKey.code, withKey.stderr]).toEqual([2, expect.stringContaining('contains the API key')]);
    write(['good', 'a paper boat'], ['bad', '']);
    const refused = await batch('enqueue', file);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('clips.csv:3')]);
    expect(await rowsInQueue()).toBe('');
    const { code, json } = await batch('enqueue', file, '--skip-bad', '--json');
    expect([code, json['enqueued']]).toEqual([11, 1]);
  });

  it('batch enqueue refuses a row that waits for another row, and suggests running the batch', async () => {
    writeFileSync(file, 'id,protocol,model,duration,prompt,image\na,a,veo-3,8,x,\nb,a,veo-3,8,y,@a:last\n');
    const { code, json } = await batch('enqueue', file, '--name', 'film', '--json');
    const next = ['mgw', 'batch', 'run', file, '--name', 'film'];
    expect([code, json]).toMatchObject([
      2,
      { error: { message: expect.stringContaining('waits for a') as string, next } },
    ]);
  });

  it('batch enqueue repairs a damaged entry of the batch', async () => {
    write(['a', 'a paper boat']);
    await batch('enqueue', file, '--per-minute', '9');
    await place.query(`update mgw.batches set head = '{'`);
    expect((await batch('status', 'clips')).stderr).toContain('Enqueue its file again');
    const { code, stderr } = await batch('enqueue', file, '--budget', '5');
    expect(code, stderr).toBe(0);
    expect(await headInQueue()).toMatchObject({ concurrency: 4, budget: '5' });
  });

  it('batch enqueue reports a changed row, and no worker pays for the change, even after a refused retake and after --again', async () => {
    write(['a', 'a paper boat']);
    await batch('enqueue', file);
    await work();
    write(['a', 'a paper plane'], ['b', 'a paper hat']);
    const { code, json, stderr } = await batch('enqueue', file, '--json');
    expect([code, json]).toMatchObject([11, { enqueued: 1, changed: ['a'] }]);
    expect(stderr).toContain('mgw batch retry');
    await work();
    expect(charges()).toEqual({ 'a paper boat': 1, 'a paper hat': 1 });
    gateway.judge = () => ({ kind: 'refuse' });
    expect((await batch(...retryOf(file))).code).toBe(11);
    gateway.judge = () => undefined;
    write(['a', 'a paper boat'], ['b', 'a paper hat']);
    expect((await batch('enqueue', file)).code).toBe(0);
    // The row is saved again on a machine that does not have its file.
    await runHereAs(here, ['worker', '-o', join(here.cwd, '{id}.{ext}'), ...quick]);
    expect(charges()).toEqual({ 'a paper boat': 1, 'a paper hat': 1 });
    await runHereAs(here, ['jobs', 'rm', '@clips/b']);
    const again = await batch('enqueue', 'clips', '--again', '--json');
    expect([again.code, again.json]).toMatchObject([0, { again: 1 }]);
    expect(await rowsInQueue()).toBe('a\tended\nb\twaiting');
    rmSync(join(machines.shared, 'out', 'b.mp4'));
    expect((await work()).code).toBe(0);
    expect(charges()).toEqual({ 'a paper boat': 1, 'a paper hat': 2 });
  });

  it('batch enqueue updates a queued row that was never sent, or only rate-limited, if its content or a default has changed', async () => {
    const setDuration = (value: string): Promise<CliResult> =>
      runHereAs(here, ['config', 'set', 'defaults.video.c.vendor-h3-mini.duration', value]);
    const writeRow = (prompt: string): void =>
      writeFileSync(file, `id,model,prompt\na,vendor-h3-mini,${prompt}\n`);
    writeRow('a paper boat');
    await setDuration('5');
    await batch('enqueue', file);
    await setDuration('10');
    const { code, json } = await batch('enqueue', file, '--json');
    expect([code, json]).toMatchObject([0, { enqueued: 0, replaced: 1, known: 0 }]);
    gateway.judge = () => ({ kind: 'limit' });
    const limited = await batch('run', file, ...machines.output, '--retries', '0');
    expect(limited.code, limited.stderr).toBe(11);
    gateway.judge = () => undefined;
    const { length } = gateway.posts();
    writeRow('a paper plane');
    const changed = await batch('enqueue', file, '--json');
    expect([changed.code, changed.json]).toMatchObject([0, { replaced: 1, changed: [] }]);
    await work();
    expect(charges()).toEqual({ 'a paper plane': 1 });
    expect(gateway.posts()[length]?.body).toContain('"duration":10');
    await setDuration('5');
    const paid = await batch('enqueue', file, '--json');
    expect([paid.code, paid.json]).toMatchObject([0, { enqueued: 0, changed: [] }]);
    expect(await rowsInQueue()).toBe('a\tended');
  });

  it('batch enqueue reports unpaid rows that are no longer in the file, and removes only these with --remove-missing', async () => {
    const writeWithoutIds = (...prompts: string[]): void =>
      writeFileSync(
        file,
        `model,duration,prompt\n${prompts.map((each) => `vendor-h3-mini,5,${each}\n`).join('')}`,
      );
    writeWithoutIds('a paper boat', 'a paper hat');
    await batch('enqueue', file);
    writeWithoutIds('a paper plane', 'a paper hat');
    const edited = await batch('enqueue', file, '--json');
    const missing = [expect.any(String) as string];
    expect([edited.code, edited.json]).toMatchObject([11, { enqueued: 1, missing, removed: 0 }]);
    const [, next = ''] = /1 waiting row is not in .* mgw (batch enqueue .*)/.exec(edited.stderr) ?? [];
    const removed = await runHereAs(here, [...next.split(' '), '--json']);
    expect([removed.code, removed.json]).toMatchObject([0, { enqueued: 0, missing: [], removed: 1 }]);
    await work();
    expect(charges()).toEqual({ 'a paper hat': 1, 'a paper plane': 1 });
    await place.query(`update mgw.batch_rows set state = 'waiting', outcome = null`);
    write(['new', 'a paper boat']);
    const paid = await batch('enqueue', file, '--remove-missing', '--json');
    expect([paid.code, paid.json]).toMatchObject([0, { enqueued: 1, removed: 0 }]);
    expect((await rowsInQueue()).match(/waiting/g)).toHaveLength(3);
  });

  it('two files can be enqueued under one name', async () => {
    await batch('enqueue', machines.manifest(1, 'other.csv'), '--name', 'film');
    write(['other', 'a paper boat']);
    const { code, json } = await batch('enqueue', file, '--name', 'film', '--json');
    expect([code, json]).toMatchObject([0, { enqueued: 1, missing: ['row-0'] }]);
    expect(await rowsInQueue()).toBe('row-0\twaiting\nother\twaiting');
  });

  it("batch retry pays for a changed row only once the database has stored the row's new content in the queue", async () => {
    write(['a', 'a paper boat']);
    await batch('enqueue', file);
    await work();
    write(['a', 'a paper plane']);
    await place.query(
      `create function mgw.fail() returns trigger language plpgsql as $$ begin raise exception 'away' using errcode = '57P03'; end $$;
      create trigger fail before update on mgw.batch_rows for each row execute function mgw.fail()`,
    );
    const mend = async (): Promise<unknown> => place.query('drop function if exists mgw.fail cascade');
    onEnd(async () => {
      await mend();
    });
    const impatient = machines.machine(place.url('lease=10m&connect_timeout=1'));
    const failed = await runHereAs(impatient, ['batch', ...retryOf(file)]);
    expect([failed.code, charges()]).toEqual([6, { 'a paper boat': 1 }]);
    await mend();
    expect((await batch(...retryOf(file))).code).toBe(0);
    const status = await batch('status', 'clips', '--json');
    expect([status.code, status.json['batch']]).toMatchObject([0, { states: { done: 1 } }]);
    // Simulates a process that died before it updated the queue.
    await place.query("update mgw.batch_rows set hash = 'old', content = replace(content, 'plane', 'boat')");
    const enqueued = await batch('enqueue', file, '--json');
    expect([enqueued.code, enqueued.json]).toMatchObject([0, { replaced: 1, changed: [] }]);
    expect((await batch('status', 'clips')).code).toBe(0);
    expect(charges()).toEqual({ 'a paper boat': 1, 'a paper plane': 1 });
  });

  function retryOf(path: string): string[] {
    const args = ['retry', path, '--name', 'clips', '--id', 'a', ...machines.output];
    return [...args, '--poll-interval', '10ms'];
  }

  it('a worker marks malformed rows from an unknown program as bad, does not read their files, and continues', async () => {
    const good = {
      index: 1,
      line: 2,
      kind: 'c',
      tags: [],
      body: { model: 'vendor-h3-mini', prompt: 'a boat' },
    };
    const spoken = { index: 1, line: 2, kind: 'tts', tags: [], text: 'hello', flags: {}, set: [] };
    const secret = join(machines.shared, 'secret');
    writeFileSync(secret, '{"model":"vendor-h3-mini","prompt":"the secret"}');
    const contents: unknown[] = [
      { ...good, body: `@${secret}` },
      { ...good, flags: { image: secret } },
      { ...good, endpoint: '../../x' },
      { ...good, output: '../x.mp4' },
      { ...good, output: '/tmp/x.mp4' },
      { ...good, output: 'a\nb.mp4' },
      { ...good, output: '{seed}.mp4' },
      { ...good, output: `${'a/'.repeat(5000)}x.mp4` },
      { ...good, output: 'file/x.mp4' },
      { ...good, kind: 'z' },
      { ...good, id: 'another' },
      { ...spoken, text: undefined, file: secret },
      { ...spoken, file: secret },
      { ...spoken, flags: { 'ext-info': `@${secret}` } },
      null,
      [],
    ];
    const rows = contents.map((row, n) => {
      const id = `bad-${n}`;
      const text = JSON.stringify(row !== null && !Array.isArray(row) ? { id, ...(row as object) } : row);
      return `('clips', '${id}', 'h', '${text.replaceAll("'", "''")}')`;
    });
    mkdirSync(join(machines.shared, 'out'));
    writeFileSync(join(machines.shared, 'out', 'file'), '');
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1)]);
    await place.query(
      `insert into mgw.batch_rows (batch, id, hash, content) values ${rows.join(', ')}, ('clips', 'text', 'h', 'no JSON')`,
    );
    await place.query(
      `insert into mgw.batches (name, gateway, head) select '../x', gateway, '{"output":"/tmp"}' from mgw.batches`,
    );
    await place.query(
      `insert into mgw.batch_rows (batch, id, hash, content) values ('../x', 'x', 'h', 'null')`,
    );
    const { code, stderr } = await work();
    expect([code, stderr]).toEqual([11, expect.not.stringContaining('This is a bug')]);
    expect(stderr.match(/entry for the batch ..\/x is damaged/g)).toHaveLength(1);
    expect([...gateway.charges.keys()]).toEqual(['prompt 0']);
    const outcomes = await place.query(
      `select outcome, count(*) from mgw.batch_rows where batch = 'clips' group by outcome order by 1`,
    );
    expect(outcomes).toBe(`bad\t${contents.length + 1}\ndone\t1`);
    expect(await place.query(`select count(*) from mgw.events where line like '%secret%'`)).toBe('0');
    const status = await runHereAs(here, ['batch', 'status', 'clips', '--json']);
    expect([status.code, status.json.batch]).toMatchObject([11, { rows: 18, bad: 16 }]);
  });

  it('a worker exits with 11 with --strict if a video differs from its request, but keeps the video and does not pay again', async () => {
    const clip = { width: 96, height: 64 };
    place.gateway.videoOf = (prompt) => renderVideo({ ...clip, prompt, seconds: prompt === 'short' ? 2 : 5 });
    file = join(machines.shared, 'clips.jsonl');
    const row = { protocol: 'c', model: 'vendor-h3-mini', duration: 5 };
    const rows = ['short', 'whole'].map((id) => JSON.stringify({ ...row, id, prompt: id }));
    writeFileSync(file, rows.join('\n'));
    await batch('enqueue', file);
    const results = join(machines.shared, 'results.jsonl');
    const { code, stderr } = await work('--strict', '--mark', '--results', results);
    expect([code, stderr]).toEqual([11, expect.stringContaining('duration 2 s instead of 5 s')]);
    expect(stderr).toContain('1 row with a file that differs from the request: mgw jobs ls --mismatched');
    const lines = readFileSync(results, 'utf8').trim().split('\n');
    expect(lines.map((line) => JSON.parse(line) as object).sort(byExitCode)).toMatchObject([
      {
        id: 'whole',
        exit_code: 0,
        files: [{ unmarked_sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as string }],
      },
      { id: 'short', exit_code: 9, state: 'done', error: { code: 'result_corrupt', charged: 'yes' } },
    ]);
    expect(existsSync(join(machines.shared, 'out', 'short.mp4'))).toBe(true);
    await runHereAs(here, ['batch', 'enqueue', 'clips', '--again']);
    await work('--strict');
    expect([...gateway.charges.values()]).toEqual([1, 1]);
  });

  it('a worker requires an -o with a file for each row, and batch enqueue refuses -o, so no row is claimed or added', async () => {
    file = machines.manifest(1);
    expect((await batch('enqueue', file, ...machines.output)).code).toBe(2);
    expect(await rowsInQueue()).toBe('');
    await batch('enqueue', file);
    for (const [output, why] of [
      [[], 'mgw worker -o'],
      [['-o', 'out/{nmae}/{id}.{ext}'], 'no such placeholder: {nmae}'],
      [['-o', 'out/x.mp4'], 'specifies one file for all rows'],
      [['-o', 'out/{name}-{n}.{ext}'], 'specifies one file for all rows'],
    ] as const) {
      const { code, stderr } = await runHereAs(here, ['worker', ...output, ...quick]);
      expect([code, stderr], output.join(' ')).toEqual([2, expect.stringContaining(why)]);
    }
    expect(await rowsInQueue()).toBe('row-0\twaiting');
  });

  it("a worker returns a row to the queue unpaid, and becomes idle, if the row's output has no valid name, exists, or belongs to another row in progress", async () => {
    await batch('enqueue', machines.manifest(1));
    const unnamed = await runHereAs(here, ['worker', '-o', join(here.cwd, '{seed}.mp4'), ...quick]);
    expect([unnamed.code, unnamed.stderr]).toEqual([
      11,
      expect.stringContaining('no value is known for {seed} (returned to the queue)'),
    ]);
    const { stdout } = await batch('status', 'clips');
    expect(stdout).toContain('row-0 returned to the queue: no value is known for {seed}');
    await place.query(
      `insert into mgw.batch_rows (batch, id, hash, content) select batch, 'other', 'h', replace(content, 'row-0', 'other') from mgw.batch_rows;
      ${rowsAreDue}`,
    );
    const output = join(machines.shared, 'prompt-0.mp4');
    writeFileSync(output, 'of another program');
    const bySlug = ['worker', '-o', join(machines.shared, '{slug}.{ext}'), ...quick];
    expect((await runHereAs(here, bySlug)).code).toBe(11);
    expect([await rowsInQueue(), charges()]).toEqual(['row-0\twaiting\nother\twaiting', {}]);
    await place.query(
      `${rowsAreDue}; update mgw.batch_rows set state = 'ended', why = null where id = 'other'`,
    );
    rmSync(output);
    // The other row becomes available once the first one is accepted, and is refused before the first one ends.
    gateway.polls = 0;
    const refused = signal();
    gateway.before = async ({ method }) => {
      if (method !== 'GET') return;
      await place.query(`update mgw.batch_rows set state = 'waiting' where id = 'other'`);
      await refused.promise;
    };
    const worker = runHereAs(here, bySlug);
    await expect
      .poll(() => place.query(`select why from mgw.batch_rows where id = 'other'`))
      .toContain('also the output of another row in progress');
    refused.resolve();
    const { code, stderr } = await worker;
    expect([code, stderr]).toEqual([
      11,
      expect.stringContaining('also the output of another row in progress'),
    ]);
    await place.query(rowsAreDue);
    expect((await runHereAs(here, bySlug)).code).toBe(11);
    expect([await rowsInQueue(), charges()]).toEqual(['row-0\tended\nother\twaiting', { 'prompt 0': 1 }]);
  });

  it('a worker needs neither the files that a row refers to nor its own defaults, because a row includes those of the enqueuing machine', async () => {
    const text = join(machines.shared, 'text.txt');
    const body = join(machines.shared, 'body.json');
    writeFileSync(text, 'a paper boat at sea');
    writeFileSync(body, JSON.stringify({ model: 'vendor-h3-mini', prompt: 'a paper kite', duration: 7 }));
    file = join(machines.shared, 'clips.jsonl');
    const rows = [
      { id: 'shown', protocol: 'c', model: 'vendor-h3-mini', prompt: 'a paper hat' },
      { id: 'spoken', protocol: 'tts', file: text },
      { id: 'given', protocol: 'c', body: `@${body}` },
    ];
    writeFileSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    const other = machines.machine();
    for (const [user, duration, speaker] of [
      [here, '5', 'en_female_1'],
      [other, '10', 'zh_male_1'],
    ] as const) {
      await runHereAs(user, ['config', 'set', 'defaults.video.c.vendor-h3-mini.duration', duration]);
      await runHereAs(user, ['config', 'set', 'tts.speaker', speaker]);
    }
    expect(await batch('enqueue', file)).toMatchObject({ code: 0 });
    rmSync(text);
    rmSync(body);
    expect(await workOn(other)).toMatchObject({ code: 0 });
    for (const [prompt, own] of [
      ['a paper hat', '"duration":5'],
      ['a paper boat at sea', '"speaker":"en_female_1"'],
      ['a paper kite', '"duration":7'],
    ] as const) {
      const sent = gateway.posts().filter((each) => each.body.includes(prompt));
      expect(sent.map((each) => each.body)).toEqual([expect.stringContaining(own)]);
    }
  });

  it('on SIGTERM, a worker waits for its pending response, returns the other rows, and records a submission as unknown after --grace', async () => {
    const answered = signal();
    gateway.polls = Infinity;
    gateway.judge = (prompt) =>
      prompt === 'prompt 1' ? { kind: 'wait', until: answered.promise } : undefined;
    await batch('enqueue', machines.manifest(3), '--concurrency', '2');
    const patient = start(machines.machine(), '--grace', '1h');
    await expect.poll(() => gateway.posts().length).toBe(2);
    patient.terminate();
    await expect.poll(rowsInQueue).toContain('row-0\twaiting');
    answered.resolve();
    expect((await patient.result).code).toBe(143);
    const rows = await place.query('select id, state, lost, outcome from mgw.batch_rows order by position');
    expect(rows).toBe('row-0\twaiting\t0\t\nrow-1\twaiting\t0\t\nrow-2\twaiting\t0\t');
    gateway.polls = 1;
    gateway.judge = () => ({ kind: 'wait', until: new Promise(() => undefined) });
    const impatient = start(machines.machine(), '--grace', '100ms');
    await expect.poll(() => gateway.posts().length).toBe(3);
    impatient.terminate();
    const { code, stderr } = await impatient.result;
    expect([code, stderr]).toEqual([143, expect.stringContaining('mgw jobs resolve')]);
    expect(await rowsInQueue()).toContain('row-2\tended');
    expect((await work()).code).toBe(0);
    expect(charges()).toEqual({ 'prompt 0': 1, 'prompt 1': 1, 'prompt 2': 1 });
  });

  it('a worker finishes rows in doubt after the user resolves them, and pays again only for those that were not created', async () => {
    gateway.judge = (prompt) => (gateway.charges.has(prompt) ? undefined : { kind: 'lose' });
    await batch('enqueue', machines.manifest(2));
    expect((await work()).code).toBe(11);
    await runHereAs(here, ['jobs', 'resolve', '@clips/row-0', '--adopt', gateway.taskOf('prompt 0')]);
    await runHereAs(here, ['jobs', 'resolve', '@clips/row-1', '--not-created']);
    expect((await work()).code).toBe(0);
    const status = await batch('status', 'clips', '--json');
    expect(status.json['batch']).toMatchObject({ states: { done: 2 } });
    expect(charges()).toEqual({ 'prompt 0': 1, 'prompt 1': 2 });
  });

  it('a worker finishes a row whose worker was stopped after saving the file but before recording it', async () => {
    const proxy = await CuttingProxy.open(place.port);
    await batch('enqueue', machines.manifest(1));
    const isSaved = signal();
    proxy.before(/type\W+delivered\W/, () => {
      proxy.hold();
      isSaved.resolve();
    });
    const stopped = start(machines.machine(place.url('lease=10m', proxy.port)));
    await isSaved.promise;
    await place.query(leasesEnd);
    expect((await work()).code).toBe(0);
    const elsewhere = await runHereAs(machines.machine(), ['batch', 'status', 'clips', '--json']);
    expect(elsewhere.json['batch']).toMatchObject({ states: { done: 1 } });
    stopped.terminate();
    proxy.up();
    await stopped.result;
    expect(charges()).toEqual({ 'prompt 0': 1 });
  });

  it('a worker survives a database outage, and a row that another worker found in doubt is finished once the database contains its handle', async () => {
    const proxy = await CuttingProxy.open(place.port);
    const answered = signal();
    gateway.judge = () => ({ kind: 'wait', until: answered.promise });
    await batch('enqueue', machines.manifest(1));
    const machine = machines.machine(place.url('connect_timeout=1', proxy.port));
    const clock = stoppable(hurried());
    const survivor = startWith(clock, machine);
    await expect.poll(() => gateway.posts().length).toBe(1);
    proxy.down();
    answered.resolve();
    await expect.poll(() => countUnwritten(machine.env['MGW_STATE_DIR'] ?? '')).toBeGreaterThan(0);
    await place.query(leasesEnd);
    expect((await work()).code).toBe(11);
    expect(await place.query('select state, outcome from mgw.batch_rows')).toBe('ended\tunknown');
    proxy.up();
    // The worker learns that its lease has ended, and acquires another one.
    clock.stop(30_000);
    write(['other', 'a paper boat']);
    await batch('enqueue', file, '--name', 'other');
    const outcomes = 'select id, outcome from mgw.batch_rows order by position';
    await expect.poll(() => place.query(outcomes)).toBe('row-0\tdone\nother\tdone');
    survivor.terminate();
    expect(await survivor.result).toMatchObject({
      code: 143,
      stderr: expect.stringContaining('Retrying') as string,
    });
    expect(charges()).toEqual({ 'prompt 0': 1, 'a paper boat': 1 });
  });

  it('a worker whose budget is used up saves paid rows and suggests the command that raises it, and the next worker pays for all other rows', async () => {
    await priced(here);
    write(['paid', 'a paper boat']);
    gateway.polls = Infinity;
    await batch('run', file, ...machines.output, '--timeout', '1s');
    gateway.polls = 1;
    const others = [0, 1, 2, 3].map((n): [string, string] => [`new-${n}`, `boat ${n}`]);
    write(...others, ['paid', 'a paper boat']);
    await batch('enqueue', file, '--budget', '2', '--concurrency', '1');
    const { code, stderr } = await workOn(here, '--concurrency', '2');
    const [, next = ''] =
      /The budget of the batch clips of 2 is too low.* → mgw (batch .*)/.exec(stderr) ?? [];
    expect([code, charges()]).toEqual([11, { 'a paper boat': 1, 'boat 0': 1 }]);
    expect(existsSync(join(machines.shared, 'out', 'paid.mp4'))).toBe(true);
    expect(stderr).not.toContain('--budget 2 is');
    expect(stderr).toContain('The rest of the batch needs a limit of 5.');
    expect(next).toBe('batch enqueue clips --again --budget 5');
    expect((await batch('status', 'clips')).stdout).toContain(`→ mgw ${next}`);
    expect(await runHereAs(here, next.split(' '))).toMatchObject({ code: 0 });
    expect((await workOn(here)).code).toBe(0);
    expect([...gateway.charges.values()]).toEqual([1, 1, 1, 1, 1]);
  });

  it('a worker still saves a row that is already paid for after an empty balance stops the others', async () => {
    write(['paid', 'a paper boat']);
    gateway.polls = Infinity;
    await batch('run', file, ...machines.output, '--timeout', '1s');
    gateway.polls = 1;
    gateway.judge = () => ({ kind: 'forbid', message: 'insufficient balance' });
    const others = [0, 1, 2, 3].map((n): [string, string] => [`new-${n}`, `boat ${n}`]);
    write(...others, ['paid', 'a paper boat']);
    await batch('enqueue', file, '--concurrency', '1');
    const { code, stderr } = await workOn(here, '--concurrency', '2');
    expect(code, stderr).toBe(4);
    expect(existsSync(join(machines.shared, 'out', 'paid.mp4'))).toBe(true);
    expect(charges()).toEqual({ 'a paper boat': 1 });
  });

  it('a worker keeps to a budget that is lowered while it runs the batch', async () => {
    const user = machines.machine();
    await runHereAs(user, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
    await runHereAs(user, ['batch', 'enqueue', machines.manifest(6), '--budget', '50', '--concurrency', '1']);
    const answered = signal();
    let count = 0;
    gateway.judge = () => ((count += 1) === 2 ? { kind: 'wait', until: answered.promise } : undefined);
    const worker = runHereAs(user, ['worker', ...machines.output, ...quick]);
    await expect.poll(() => gateway.posts().length).toBe(2);
    await runHereAs(user, ['batch', 'enqueue', 'clips', '--again', '--budget', '2']);
    // The search that finds the other batch also finds the new budget.
    const other = join(machines.shared, 'other.csv');
    writeFileSync(other, clips(['x', 'another boat']));
    await runHereAs(user, ['batch', 'enqueue', other]);
    await expect.poll(() => gateway.posts().length).toBe(3);
    answered.resolve();
    expect((await worker).code).toBe(11);
    expect(gateway.posts()).toHaveLength(3);
  });

  it('a batch keeps its budget and limits if another machine enqueues its file, and --again changes only the given ones', async () => {
    file = machines.manifest(2);
    const headAfter = async (user: User, ...args: string[]): Promise<unknown> => {
      expect(await runHereAs(user, ['batch', 'enqueue', ...args])).toMatchObject({ code: 0 });
      return JSON.parse(await place.query('select head from mgw.batches')) as unknown;
    };
    const limits = { concurrency: 2, perMinute: 10, budget: '0.7' };
    const flags = ['--concurrency', '2', '--per-minute', '10', '--budget', '0.7'];
    const named = [file, '--name', 'promo.v2'];
    expect(await headAfter(here, ...named, ...flags)).toMatchObject(limits);
    expect(await headAfter(machines.machine(), ...named)).toMatchObject(limits);
    expect(await headAfter(here, ...named, '--concurrency', '3')).toMatchObject({
      ...limits,
      concurrency: 3,
    });
    const changes = ['--per-minute', '20', '--sidecar'];
    const again = await headAfter(machines.machine(), 'promo.v2', '--again', ...changes);
    expect(again).toMatchObject({ concurrency: 3, perMinute: 20, budget: '0.7', sidecar: true });
  });

  it('batch enqueue for a different gateway is refused, and changes neither the batch nor its budget', async () => {
    file = machines.manifest(1);
    await batch('enqueue', file, '--budget', '15');
    const other = machines.machine();
    other.env['MGW_BASE_URL'] = `${gateway.url}/other`;
    const refused = await runHereAs(other, ['batch', 'enqueue', file, '--budget', '1000']);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining(gateway.url)]);
    expect((await batch('enqueue', file)).stderr).toContain('budget 15,');
    expect(await headInQueue()).toMatchObject({ budget: '15' });
    expect((await runHereAs(other, ['batch', 'status', 'clips'])).stdout).toContain('1 waiting');
  });

  it("a batch's last budget, of a run or of the queue, limits its runs and workers on every machine, rather than the file's budget", async () => {
    file = join(machines.shared, 'clips.yaml');
    const rows = ['a', 'b', 'c', 'd'].map(
      (id) => `{id: ${id}, model: vendor-h3-mini, duration: 5, prompt: boat ${id}}`,
    );
    writeFileSync(file, `budget: 50\nrows: [${rows.join(', ')}]\n`);
    const other = machines.machine();
    const copy = join(other.cwd, 'clips.yaml');
    copyFileSync(file, copy);
    for (const user of [here, other]) await priced(user);
    const slowly = [...machines.output, '--concurrency', '1', '--poll-interval', '10ms'];
    const worked = async (): Promise<[number, number]> => {
      await place.query(rowsAreDue);
      return [(await workOn(other)).code, gateway.posts().length];
    };
    await batch('enqueue', file, '--budget', '1');
    const run = await runHereAs(other, ['batch', 'run', copy, ...slowly]);
    expect([run.code, run.stderr]).toEqual([
      12,
      expect.stringContaining("Using the batch's last --budget: 1."),
    ]);
    expect(await worked()).toEqual([11, 1]);
    expect((await batch('run', file, ...slowly, '--budget', '2')).code).toBe(12);
    expect([await headInQueue(), gateway.posts().length]).toMatchObject([{ budget: '2' }, 2]);
    expect(await worked()).toEqual([11, 2]);
    for (const expected of ['budget 2,', 'budget 2,'])
      expect((await runHereAs(other, ['batch', 'enqueue', copy])).stderr).toContain(expected);
    await runHereAs(other, ['batch', 'enqueue', 'clips', '--again', '--budget', '3']);
    expect((await batch('run', file, ...slowly)).code).toBe(12);
    expect(gateway.posts()).toHaveLength(3);
  });

  // Whether the next submission must wait for a minute, and the number of slots.
  const limits = `select next_turn > clock_timestamp() + interval '10 seconds', (select count(*) from mgw.places) from mgw.paces`;

  it('a run or retry of an enqueued batch, by its file or by its name, uses the limits and the --sidecar of the queue', async () => {
    await batch('enqueue', machines.manifest(1), '--concurrency', '1', '--per-minute', '1', '--sidecar');
    file = machines.manifest(2);
    const addRow = `insert into mgw.batch_rows (batch, id, hash, content) select batch, 'other', 'h', replace(content, 'row-0', 'other') from mgw.batch_rows`;
    for (const [args, id, before] of [
      [['retry', file, '--id', 'row-0'], 'row-0', ''],
      [['run', file], 'row-1', ''],
      [['run', 'clips'], 'other', addRow],
    ] as const) {
      const sidecar = join(machines.shared, 'out', `${id}.mp4.json`);
      await place.query(`delete from mgw.paces; ${before}`);
      const run = ['batch', ...args, ...machines.output, '--poll-interval', '10ms'];
      expect((await runHereAs(machines.machine(), run)).code).toBe(0);
      expect([await place.query(limits), existsSync(sidecar)], args.join(' ')).toEqual(['t\t1', true]);
    }
    const plan = await batch('plan', 'clips');
    expect([plan.code, plan.stderr]).toEqual([0, expect.not.stringContaining('different file')]);
  });

  it('an agent that runs an enqueued batch uses the limits of the queue, and updates a changed row there', async () => {
    await runHereAs(here, [
      'batch',
      'enqueue',
      machines.manifest(1),
      '--concurrency',
      '1',
      '--per-minute',
      '1',
    ]);
    const user = machines.machine();
    await runHereAs(user, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
    await runHereAs(user, ['config', 'set', 'poll_interval', '10ms']);
    writeFileSync(join(user.cwd, 'clips.csv'), clips(['row-0', 'a paper hat']));
    const agent = await connect('v1', user, ['mcp', '--budget', '5']);
    const batch = { manifest: 'clips.csv', output: '{id}.{ext}' };
    expect(await agent.call('batch_run', batch)).toMatchObject({ ok: true });
    await expect.poll(async () => (await agent.call('batch_status', batch))['pending']).toBe(undefined);
    expect(await place.query(limits)).toBe('t\t1');
    expect(await place.query('select content from mgw.batch_rows')).toContain('a paper hat');
  });

  it('a worker that rows in doubt have stopped still pauses after each one if it resumes an accepted row', async () => {
    const row = (id: string): [string, string] => [id, `boat ${id}`];
    write(row('accepted'));
    gateway.polls = Infinity;
    await runHereAs(here, ['batch', 'run', file, ...machines.output, '--timeout', '1s']);
    gateway.polls = 1;
    gateway.judge = () => ({ kind: 'lose' });
    write(...[0, 1, 2, 3, 4, 'accepted', 5, 6].map((id) => row(String(id))));
    await runHereAs(here, ['batch', 'enqueue', file, '--concurrency', '1']);
    const worker = ['worker', ...machines.output, '--max-idle', '65s'];
    const { stderr } = await runHereAs(machines.machine(), worker, '', hurried(200));
    const pauses = stderr.match(/Retrying in 60 s/g)?.length ?? 0;
    expect(pauses, stderr).toBeGreaterThan(1);
    expect(gateway.posts()).toHaveLength(1 + 5 + pauses - 1);
    expect(gateway.charges.get('boat accepted')).toBe(1);
  });

  it('a worker that rows in doubt have stopped runs speech in parallel again once a row is accepted', async () => {
    file = join(machines.shared, 'clips.jsonl');
    const rows = Array.from({ length: 9 }, (_, n) => ({ protocol: 'tts', text: `boat ${n}`, id: `r${n}` }));
    writeFileSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    await runHereAs(here, ['batch', 'enqueue', file, '--concurrency', '2']);
    let release: () => void = () => undefined;
    const until = new Promise<void>((resolve) => (release = resolve));
    gateway.judge = () => {
      const sent = gateway.posts().length;
      if (sent <= 6) return { kind: 'lose' };
      if (sent === 9) release();
      return sent === 8 ? { kind: 'wait', until } : undefined;
    };
    const worker = [
      'worker',
      ...machines.output,
      '--concurrency',
      '2',
      '--max-idle',
      '65s',
      '--timeout',
      '5m',
    ];
    const { stderr } = await runHereAs(machines.machine(), worker, '', hurried(200));
    const status = await runHereAs(here, ['batch', 'status', 'clips', '--json']);
    expect(status.json, stderr).toMatchObject({ batch: { states: { done: 3, unknown: 6 } } });
  });

  it('a worker runs a row once if its lease ends while the row waits for a slot', async () => {
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1), '--concurrency', '1']);
    await place.query(`insert into mgw.paces (batch, most) values ('clips', 1)`);
    await place.query(
      `with lease as (insert into mgw.leases (instance, host, pid, until) values ('x', 'x', 1, 'infinity') returning id)
       insert into mgw.places (batch, number, lease) select 'clips', 1, id from lease`,
    );
    const clock = stoppable(systemClock);
    const machine = machines.machine(place.url());
    const worker = runHereAs(machine, ['worker', ...machines.output, ...quick], '', clock);
    await expect.poll(rowsInQueue).toBe('row-0\ttaken');
    await place.query(`update mgw.leases set until = clock_timestamp() where instance <> 'x'`);
    clock.stop(31_000);
    await expect.poll(rowsInQueue).toBe('row-0\twaiting');
    await place.query('update mgw.places set lease = null');
    const { code, stderr } = await worker;
    expect([code, stderr]).toEqual([0, expect.stringContaining('1 done; 1 file saved')]);
  });

  it('a worker quarantines a row after five workers die while running it, and runs it again on request', async () => {
    await batch('enqueue', machines.manifest(1));
    await place.query("update mgw.batch_rows set state = 'taken', lost = 4, lease = 0");
    const { stderr } = await work();
    expect(stderr).toContain(
      'clips/row-0 quarantined: five workers died while running it → mgw batch enqueue clips --again',
    );
    const status = await batch('status', 'clips', '--json');
    expect(status.json['queue']).toMatchObject({ quarantined: [{ id: 'row-0' }] });
    const { stdout } = await runHereAs(here, ['--allow-http', 'batch', 'status', 'clips']);
    expect(stdout).toContain('→ mgw --allow-http batch enqueue clips --again');
    expect((await batch('enqueue', 'clips', '--again')).code).toBe(0);
    expect((await work()).code).toBe(0);
    expect(charges()).toEqual({ 'prompt 0': 1 });
  });

  it("a worker reports its health, the gateway's rate limit once, each row's outcome, and the totals", async () => {
    const limited = new Set(['prompt 0', 'prompt 2', 'prompt 4']);
    gateway.judge = (prompt) => {
      if (limited.delete(prompt)) return { kind: 'limit' };
      return prompt === 'prompt 1' ? { kind: 'doom' } : undefined;
    };
    await batch('enqueue', machines.manifest(6), '--concurrency', '4');
    const health = join(machines.shared, 'alive');
    const results = join(machines.shared, 'results.jsonl');
    const { code, json, stderr } = await work('--health-file', health, '--results', results, '--json');
    expect(code).toBe(11);
    expect(json['worker']).toMatchObject({ rows: 6, states: { done: 5, failed: 1 }, files: 5 });
    expect(stderr.match(/the gateway limits parallel tasks/g)).toHaveLength(1);
    expect(stderr).toContain('clips/row-1 failed');
    expect(stderr).toMatch(/mgw batch retry clips -o '\S+' --results \S+ --id row-1\n/);
    expect(JSON.parse(readFileSync(health, 'utf8'))).toHaveProperty('at');
    expect(readFileSync(results, 'utf8').split('\n')).toHaveLength(7);
    const retried = await batch('retry', 'clips', '--failed', ...machines.output, '--poll-interval', '10ms');
    expect(retried.code).toBe(11);
    expect(gateway.charges.get('prompt 1')).toBe(2);
  });
});

it('the command line refuses a worker and batch enqueue without a shared ledger', async () => {
  const user = userHere('http://127.0.0.1:9');
  writeFileSync(join(user.cwd, 'clips.csv'), clips(['a', 'a paper boat']));
  for (const args of [['worker'], ['batch', 'enqueue', 'clips.csv']]) {
    const { code, stderr } = await user.run(args);
    expect([code, stderr]).toEqual([2, expect.stringContaining('MGW_STATE')]);
  }
});

it.each(['@/etc/passwd', '', 5, null, ['@/etc/passwd'], undefined])(
  'a queued row is reported as damaged if its body is not an object: %j',
  (body) => {
    const row = { id: 'a', index: 1, line: 2, kind: 'c', tags: [] };
    expect(() => parseRow('a', JSON.stringify({ ...row, body: { model: 'm' } }))).not.toThrow();
    expect(() => parseRow('a', JSON.stringify({ ...row, body }))).toThrow('in the queue is damaged');
  },
);

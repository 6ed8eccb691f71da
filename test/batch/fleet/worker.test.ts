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
import { beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/clock.ts';
import { onEnd } from '../../support/clean-ups.ts';
import type { CliResult, Running, User } from '../../support/cli.ts';
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

const quick = ['--poll-interval', '10ms', '--max-idle', '400ms'];

describeFleet('in a fleet,', {}, (place) => {
  let gateway: BatchGateway;
  let machines: Machines;
  let here: User;
  beforeEach(() => {
    ({ gateway, machines } = place);
    here = machines.machine();
  });

  it('several workers run the enqueued rows, each row once', async () => {
    const file = machines.manifest(6);
    const enqueued = await runHereAs(here, ['batch', 'enqueue', file, '--concurrency', '3', '--json']);
    expect([enqueued.code, enqueued.json['enqueued']]).toEqual([0, 6]);
    const workers = await Promise.all([work(), work(), work()]);
    expect(workers.map(({ code }) => code)).toEqual([0, 0, 0]);
    expect(gateway.charges.size).toBe(6);
    expect([...gateway.charges.values()].every((times) => times === 1)).toBe(true);
    for (let n = 0; n < 6; n += 1)
      expect(readFileSync(join(machines.shared, 'out', `row-${n}.mp4`))).toEqual(gateway.video);
    const status = await runHereAs(here, ['batch', 'status', 'clips']);
    expect([status.code, status.stdout]).toEqual([0, expect.stringContaining('done   6')]);
    const again = await runHereAs(here, ['batch', 'enqueue', file, '--json']);
    expect(again.json).toMatchObject({ enqueued: 0, known: 6, changed: [] });
  });

  it('a worker saves to a bucket without a shared folder, and completes uploads of a killed worker', async () => {
    const store = await s3Server();
    const machine = (): User => {
      const user = machines.machine();
      Object.assign(user.env, account, { AWS_ENDPOINT_URL_S3: store.url });
      return user;
    };
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(4)]);
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
    await place.query('update mgw.leases set until = clock_timestamp()');
    const last = machine();
    const { code, stderr } = await runHereAs(last, [...toBucket, '--max-idle', '400ms']);
    expect(code, stderr).toBe(0);
    expect([...gateway.charges.values()]).toEqual([1, 1, 1, 1]);
    const objects = [0, 1, 2, 3].map((n) => [`/bucket/clips/row-${n}.mp4`, gateway.video]);
    expect([...store.objects].sort()).toEqual(objects);
    const files = readdirSync(last.cwd, { recursive: true, encoding: 'utf8' });
    expect(files.filter((path) => path.includes('.mp4'))).toEqual([]);
  });

  it('a worker pauses once at a time, even if several rows request a pause', async () => {
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(16), '--concurrency', '16']);
    const warnings: string[] = [];
    const onWarning = ({ name }: Error): unknown => warnings.push(name);
    process.on('warning', onWarning);
    onEnd(() => void process.off('warning', onWarning));
    await work('--concurrency', '16');
    expect(warnings).toEqual([]);
    expect(gateway.charges.size).toBe(16);
  });

  it('batch enqueue adds no row if a row is invalid, unless --skip-bad is given', async () => {
    const file = join(machines.shared, 'clips.csv');
    writeFileSync(file, clips(['good', 'a paper boat'], ['bad', '']));
    const refused = await runHereAs(here, ['batch', 'enqueue', file]);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('clips.csv:3')]);
    expect(await rowsInQueue()).toBe('');
    const { code, json } = await runHereAs(here, ['batch', 'enqueue', file, '--skip-bad', '--json']);
    expect([code, json['enqueued']]).toEqual([11, 1]);
  });

  it('batch enqueue refuses a row that contains the API key', async () => {
    const file = join(machines.shared, 'clips.csv');
    writeFileSync(file, clips(['good', 'a paper boat'], ['bad', `say ${here.env['MGW_API_KEY'] ?? ''}`]));
    const refused = await runHereAs(here, ['batch', 'enqueue', file]);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('contains the API key')]);
    expect(await rowsInQueue()).toBe('');
  });

  async function rowsInQueue(): Promise<string> {
    return place.query('select id, state from mgw.batch_rows order by position');
  }

  it('batch enqueue reports a changed row, and a worker does not pay for the change', async () => {
    const file = join(machines.shared, 'clips.csv');
    writeFileSync(file, clips(['a', 'a paper boat']));
    await runHereAs(here, ['batch', 'enqueue', file]);
    await work();
    writeFileSync(file, clips(['a', 'a paper plane'], ['b', 'a paper hat']));
    const { code, json, stderr } = await runHereAs(here, ['batch', 'enqueue', file, '--json']);
    expect([code, json]).toMatchObject([11, { enqueued: 1, changed: ['a'] }]);
    expect(stderr).toContain('mgw batch retry');
    await work();
    expect([...gateway.charges]).toEqual([
      ['a paper boat', 1],
      ['a paper hat', 1],
    ]);
  });

  it('batch enqueue updates a changed row in the queue if the gateway only limited its submission', async () => {
    const file = join(machines.shared, 'clips.csv');
    writeFileSync(file, clips(['a', 'a paper boat']));
    await runHereAs(here, ['batch', 'enqueue', file]);
    gateway.judge = () => ({ kind: 'limit' });
    const limited = await runHereAs(here, ['batch', 'run', file, ...machines.output, '--retries', '0']);
    expect(limited.code, limited.stderr).toBe(11);
    gateway.judge = () => undefined;
    writeFileSync(file, clips(['a', 'a paper plane']));
    const { code, json } = await runHereAs(here, ['batch', 'enqueue', file, '--json']);
    expect([code, json]).toMatchObject([0, { replaced: 1, changed: [] }]);
    await work();
    expect([...gateway.charges]).toEqual([['a paper plane', 1]]);
  });

  it('no worker pays again for a row that was reverted after its retake was refused', async () => {
    const file = join(machines.shared, 'clips.csv');
    const write = (prompt: string): void => writeFileSync(file, clips(['a', prompt]));
    write('a paper boat');
    await runHereAs(here, ['batch', 'enqueue', file]);
    await work();
    gateway.judge = () => ({ kind: 'refuse' });
    write('a paper plane');
    expect((await runHereAs(here, retryOf(file))).code).toBe(11);
    gateway.judge = () => undefined;
    write('a paper boat');
    expect((await runHereAs(here, ['batch', 'enqueue', file])).code).toBe(0);
    const other = ['-o', join(machines.machine().cwd, '{id}.{ext}')];
    await runHereAs(machines.machine(), ['worker', ...other, ...quick], '', systemClock);
    expect([...gateway.charges]).toEqual([['a paper boat', 1]]);
  });

  /** Writes a manifest whose rows have no id. */
  function writeWithoutIds(file: string, ...prompts: string[]): void {
    const rows = prompts.map((prompt) => `vendor-h3-mini,5,${prompt}\n`).join('');
    writeFileSync(file, `model,duration,prompt\n${rows}`);
  }

  it('batch enqueue reports unpaid rows that are no longer in the file, and removes them with --remove-missing', async () => {
    const file = join(machines.shared, 'clips.csv');
    writeWithoutIds(file, 'a paper boat', 'a paper hat');
    await runHereAs(here, ['batch', 'enqueue', file]);
    writeWithoutIds(file, 'a paper plane', 'a paper hat');
    const edited = await runHereAs(here, ['batch', 'enqueue', file, '--json']);
    const missing = [expect.any(String) as string];
    expect([edited.code, edited.json]).toMatchObject([11, { enqueued: 1, missing, removed: 0 }]);
    const [, next = ''] = /1 waiting row is not in .* mgw (batch enqueue .*)/.exec(edited.stderr) ?? [];
    const { code, json } = await runHereAs(here, [...next.split(' '), '--json']);
    expect([code, json]).toMatchObject([0, { enqueued: 0, missing: [], removed: 1 }]);
    await work();
    expect([...gateway.charges.keys()].sort()).toEqual(['a paper hat', 'a paper plane']);
  });

  it('batch enqueue --remove-missing keeps rows in the queue that were paid for', async () => {
    const file = join(machines.shared, 'clips.csv');
    writeFileSync(file, clips(['paid', 'a paper boat']));
    await runHereAs(here, ['batch', 'enqueue', file]);
    await work();
    await place.query(`update mgw.batch_rows set state = 'waiting', outcome = null`);
    writeFileSync(file, clips(['new', 'a paper hat']));
    const { code, json } = await runHereAs(here, ['batch', 'enqueue', file, '--remove-missing', '--json']);
    expect([code, json]).toMatchObject([0, { enqueued: 1, removed: 0 }]);
    expect(await rowsInQueue()).toBe('paid\twaiting\nnew\twaiting');
  });

  it('batch enqueue --again requeues a row whose job was removed, but no row that was paid for', async () => {
    const file = join(machines.shared, 'clips.csv');
    writeFileSync(file, clips(['paid', 'a paper boat'], ['removed', 'a paper hat']));
    await runHereAs(here, ['batch', 'enqueue', file]);
    await work();
    await runHereAs(here, ['jobs', 'rm', '@clips/removed']);
    const { code, json } = await runHereAs(here, ['batch', 'enqueue', 'clips', '--again', '--json']);
    expect([code, json]).toMatchObject([0, { again: 1 }]);
    expect(await rowsInQueue()).toBe('paid\tended\nremoved\twaiting');
    rmSync(join(machines.shared, 'out', 'removed.mp4'));
    expect((await work()).code).toBe(0);
    expect([...gateway.charges.values()].sort()).toEqual([1, 2]);
  });

  it('two files can be enqueued under one name', async () => {
    const other = join(machines.shared, 'other.csv');
    writeFileSync(other, clips(['other', 'a paper boat']));
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1), '--name', 'film']);
    const { code, json } = await runHereAs(here, ['batch', 'enqueue', other, '--name', 'film', '--json']);
    expect([code, json]).toMatchObject([0, { enqueued: 1, missing: ['row-0'] }]);
    expect(await rowsInQueue()).toBe('row-0\twaiting\nother\twaiting');
  });

  it('batch enqueue updates a queued row if a default in the configuration has changed, and pays once', async () => {
    const file = join(machines.shared, 'clips.csv');
    const setDuration = (value: string): Promise<CliResult> =>
      runHereAs(here, ['config', 'set', 'defaults.video.c.vendor-h3-mini.duration', value]);
    writeFileSync(file, 'id,model,prompt\na,vendor-h3-mini,a paper boat\n');
    await setDuration('5');
    await runHereAs(here, ['batch', 'enqueue', file]);
    await setDuration('10');
    const { code, json } = await runHereAs(here, ['batch', 'enqueue', file, '--json']);
    expect([code, json]).toMatchObject([0, { enqueued: 0, replaced: 1, known: 0 }]);
    await work();
    expect(gateway.posts().map(({ body }) => body)).toEqual([expect.stringContaining('"duration":10')]);
    await setDuration('5');
    const again = await runHereAs(here, ['batch', 'enqueue', file, '--json']);
    expect([again.code, again.json]).toMatchObject([0, { enqueued: 0, changed: [] }]);
    await work();
    expect(gateway.posts()).toHaveLength(1);
  });

  it("batch retry updates a changed row's content in the queue once the row is paid for", async () => {
    const file = join(machines.shared, 'clips.csv');
    writeFileSync(file, clips(['a', 'a paper boat']));
    await runHereAs(here, ['batch', 'enqueue', file]);
    await work();
    writeFileSync(file, clips(['a', 'a paper plane']));
    const retry = retryOf(file);
    expect((await runHereAs(here, retry)).code).toBe(0);
    const status = await runHereAs(here, ['batch', 'status', 'clips', '--json']);
    expect([status.code, status.json['batch']]).toMatchObject([0, { states: { done: 1 } }]);
    // Simulates a process that died before it updated the queue.
    await place.query("update mgw.batch_rows set hash = 'old', content = replace(content, 'plane', 'boat')");
    const enqueued = await runHereAs(here, ['batch', 'enqueue', file, '--json']);
    expect([enqueued.code, enqueued.json]).toMatchObject([0, { replaced: 1, changed: [] }]);
    const run = await runHereAs(here, ['batch', 'status', 'clips']);
    expect([run.code, gateway.charges.size]).toEqual([0, 2]);
    expect([...gateway.charges.values()]).toEqual([1, 1]);
  });

  it('batch retry does not pay for a changed row if the database cannot store the new content in the queue', async () => {
    const file = join(machines.shared, 'clips.csv');
    writeFileSync(file, clips(['a', 'a paper boat']));
    await runHereAs(here, ['batch', 'enqueue', file]);
    await work();
    writeFileSync(file, clips(['a', 'a paper plane']));
    await place.query(
      `create function mgw.fail() returns trigger language plpgsql as $$ begin raise exception 'away' using errcode = '57P03'; end $$`,
    );
    await place.query(
      'create trigger fail before update on mgw.batch_rows for each row execute function mgw.fail()',
    );
    const { code } = await runHereAs(here, retryOf(file));
    expect([code, [...gateway.charges]]).toEqual([6, [['a paper boat', 1]]]);
  });

  function retryOf(file: string): string[] {
    const args = ['batch', 'retry', file, '--name', 'clips', '--id', 'a', ...machines.output];
    return [...args, '--poll-interval', '10ms'];
  }

  // Starts a worker in its own process, because a signal in this process would reach the listeners of earlier runs.
  function start(...more: string[]): Running {
    return machines.machine().start(['worker', ...machines.output, ...quick, ...more]);
  }

  function work(...more: string[]): Promise<CliResult> {
    return runHereAs(machines.machine(), ['worker', ...machines.output, ...quick, ...more], '', systemClock);
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

  it('a worker exits 11 with --strict if a video differs from its request, but keeps the video and does not pay again', async () => {
    const clip = { width: 96, height: 64 };
    place.gateway.videoOf = (prompt) => renderVideo({ ...clip, prompt, seconds: prompt === 'short' ? 2 : 5 });
    const file = join(machines.shared, 'clips.jsonl');
    const row = { protocol: 'c', model: 'vendor-h3-mini', duration: 5 };
    const rows = ['short', 'whole'].map((id) => JSON.stringify({ ...row, id, prompt: id }));
    writeFileSync(file, rows.join('\n'));
    await runHereAs(here, ['batch', 'enqueue', file]);
    const results = join(machines.shared, 'results.jsonl');
    const { code, stderr } = await work('--strict', '--mark', '--results', results);
    expect([code, stderr]).toEqual([11, expect.stringContaining('duration 2 s instead of 5 s')]);
    expect(stderr).toContain('1 row with a file that differs from the request: mgw jobs ls --mismatched');
    const told = readFileSync(results, 'utf8').trim().split('\n');
    expect(told.map((line) => JSON.parse(line) as object).sort(byExitCode)).toMatchObject([
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

  it('a worker requires -o, but batch enqueue refuses -o', async () => {
    const { code, stderr } = await runHereAs(here, ['worker', ...quick]);
    expect([code, stderr]).toEqual([2, expect.stringContaining('mgw worker -o')]);
    const enqueued = await runHereAs(here, ['batch', 'enqueue', machines.manifest(1), ...machines.output]);
    expect([enqueued.code, await rowsInQueue()]).toEqual([2, '']);
  });

  it('a worker refuses an unknown placeholder or one file for all rows when it starts, and does not claim a row', async () => {
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1)]);
    for (const [output, why] of [
      ['out/{nmae}/{id}.{ext}', 'no such placeholder: {nmae}'],
      ['out/x.mp4', 'specifies one file for all rows'],
      ['out/{name}-{n}.{ext}', 'specifies one file for all rows'],
    ] as const) {
      const { code, stderr } = await runHereAs(here, ['worker', '-o', output, ...quick]);
      expect([code, stderr], output).toEqual([2, expect.stringContaining(why)]);
    }
    expect(await rowsInQueue()).toBe('row-0\twaiting');
  });

  it("a worker returns a row to the queue unpaid, and becomes idle, if the row's output exists or has no valid name", async () => {
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1)]);
    const unnamed = await runHereAs(
      here,
      ['worker', '-o', join(here.cwd, '{seed}.mp4'), ...quick],
      '',
      systemClock,
    );
    expect([unnamed.code, unnamed.stderr]).toEqual([
      11,
      expect.stringContaining('no value is known for {seed} (returned to the queue)'),
    ]);
    const { stdout } = await runHereAs(here, ['batch', 'status', 'clips']);
    expect(stdout).toContain('row-0 returned to the queue: no value is known for {seed}');
    const due = 'update mgw.batch_rows set not_before = null';
    await place.query(due);
    mkdirSync(join(machines.shared, 'out'));
    writeFileSync(join(machines.shared, 'out', 'row-0.mp4'), 'of another program');
    expect((await work()).code).toBe(11);
    expect([await rowsInQueue(), gateway.charges.size]).toEqual(['row-0\twaiting', 0]);
    await place.query(due);
    rmSync(join(machines.shared, 'out', 'row-0.mp4'));
    expect((await work()).code).toBe(0);
    expect(gateway.charges.get('prompt 0')).toBe(1);
  });

  it('a worker pays for only one of two rows in progress that have the same output file', async () => {
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(2)]);
    await place.query("delete from mgw.batch_rows where id <> 'row-0'");
    await place.query(
      "insert into mgw.batch_rows (batch, id, hash, content) select batch, 'other', 'h', replace(content, 'row-0', 'other') from mgw.batch_rows",
    );
    const args = ['worker', '-o', join(machines.shared, '{slug}.{ext}'), ...quick];
    const worker = runHereAs(here, args);
    await expect.poll(rowsInQueue).toBe('row-0\tended\nother\twaiting');
    await place.query('update mgw.batch_rows set not_before = null');
    const { code, stderr } = await worker;
    expect([code, stderr]).toEqual([
      11,
      expect.stringContaining('also the output of another row in progress'),
    ]);
    expect([...gateway.charges]).toEqual([['prompt 0', 1]]);
    expect(await rowsInQueue()).toBe('row-0\tended\nother\twaiting');
  });

  it('a worker does not need the files that a row refers to', async () => {
    const text = join(machines.shared, 'text.txt');
    const body = join(machines.shared, 'body.json');
    writeFileSync(text, 'a paper boat at sea');
    writeFileSync(body, JSON.stringify({ model: 'vendor-h3-mini', prompt: 'a paper hat', duration: 5 }));
    const file = join(machines.shared, 'clips.jsonl');
    const rows = [
      { id: 'spoken', protocol: 'tts', file: text },
      { id: 'shown', protocol: 'c', body: `@${body}` },
    ];
    writeFileSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    const enqueued = await runHereAs(here, ['batch', 'enqueue', file]);
    expect([enqueued.code, enqueued.stderr]).toEqual([0, expect.anything()]);
    rmSync(text);
    rmSync(body);
    const { code, stderr } = await work();
    expect([code, stderr]).toEqual([0, expect.anything()]);
    expect([...gateway.charges.keys()].sort()).toEqual(['a paper boat at sea', 'a paper hat']);
  });

  it('a worker waits for the pending response on SIGTERM, and leaves the other rows to other workers', async () => {
    let answer = (): void => undefined;
    const until = new Promise<void>((resolve) => (answer = resolve));
    gateway.polls = Infinity;
    gateway.judge = (prompt) => (prompt === 'prompt 1' ? { kind: 'wait', until } : undefined);
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(6), '--concurrency', '2']);
    const { child, result } = start();
    await expect.poll(() => gateway.posts().length).toBe(2);
    child.kill('SIGTERM');
    await expect.poll(rowsInQueue).toContain('row-0\twaiting');
    answer();
    expect((await result).code).toBe(143);
    const rows = 'select id, state, lost, outcome from mgw.batch_rows order by position';
    expect(await place.query(rows)).toBe(
      Array.from({ length: 6 }, (_, n) => `row-${n}\twaiting\t0\t`).join('\n'),
    );
    gateway.polls = 1;
    expect((await work()).code).toBe(0);
    expect([...gateway.charges.values()]).toEqual([1, 1, 1, 1, 1, 1]);
  });

  it('a worker records its unanswered submissions as unknown once --grace has passed after SIGTERM', async () => {
    gateway.judge = () => ({ kind: 'wait', until: new Promise(() => undefined) });
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1)]);
    const { child, result } = start('--grace', '100ms');
    await expect.poll(() => gateway.posts().length).toBe(1);
    child.kill('SIGTERM');
    const { code, stderr } = await result;
    expect(code).toBe(143);
    expect(stderr).toContain('mgw jobs resolve');
    expect(await rowsInQueue()).toBe('row-0\tended');
    expect((await work()).code).toBe(0);
    expect(gateway.charges.get('prompt 0')).toBe(1);
  });

  it.each([
    { how: ['--adopt', 'task-1'], charges: 1 },
    { how: ['--not-created'], charges: 2 },
  ])('a worker finishes a row in doubt after the user resolves it with $how.0', async ({ how, charges }) => {
    gateway.judge = () => (gateway.charges.size === 0 ? { kind: 'lose' } : undefined);
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1)]);
    expect((await work()).code).toBe(11);
    await runHereAs(here, ['jobs', 'resolve', '@clips/row-0', ...how]);
    expect((await work()).code).toBe(0);
    const status = await runHereAs(here, ['batch', 'status', 'clips', '--json']);
    expect(status.json['batch']).toMatchObject({ states: { done: 1 } });
    expect(gateway.charges.get('prompt 0')).toBe(charges);
  });

  it('a worker finishes a row whose worker died after saving the file but before recording it', async () => {
    const proxy = await CuttingProxy.open(place.port);
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1)]);
    const killed = machines
      .machine(place.url('', proxy.port))
      .start(['worker', ...machines.output, ...quick]);
    proxy.before(/type\W+delivered\W/, () => {
      killed.child.kill('SIGKILL');
      proxy.hold();
    });
    expect((await killed.result).code).toBe(137);
    await place.query('update mgw.leases set until = clock_timestamp()');
    expect((await work()).code).toBe(0);
    const elsewhere = await runHereAs(machines.machine(), ['batch', 'status', 'clips', '--json']);
    expect(elsewhere.json['batch']).toMatchObject({ states: { done: 1 } });
    expect(gateway.charges.get('prompt 0')).toBe(1);
  });

  it('a worker finishes a row that another worker found in doubt, once the database contains the handle', async () => {
    const proxy = await CuttingProxy.open(place.port);
    let answer = (): void => undefined;
    const until = new Promise<void>((resolve) => (answer = resolve));
    gateway.judge = () => ({ kind: 'wait', until });
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1)]);
    const machine = machines.machine(place.url('connect_timeout=1', proxy.port));
    const args = ['worker', ...machines.output, '--poll-interval', '10ms'];
    const { child, result } = machine.start(args);
    await expect.poll(() => gateway.posts().length).toBe(1);
    proxy.down();
    answer();
    await expect.poll(() => countUnwritten(machine.env['MGW_STATE_DIR'] ?? '')).toBeGreaterThan(0);
    await place.query('update mgw.leases set until = clock_timestamp()');
    expect((await work()).code).toBe(11);
    expect(await place.query('select state, outcome from mgw.batch_rows')).toBe('ended\tunknown');
    proxy.up();
    await expect.poll(rowsInQueue).toBe('row-0\twaiting');
    expect((await work()).code).toBe(0);
    child.kill('SIGTERM');
    await result;
    expect(gateway.charges.get('prompt 0')).toBe(1);
  });

  it('a worker whose budget is used up suggests the command that raises it, and the next worker then pays for all remaining rows', async () => {
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(4), '--budget', '1']);
    const budgeted = async (): Promise<CliResult> => {
      const machine = machines.machine();
      await runHereAs(machine, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
      return runHereAs(machine, ['worker', ...machines.output, ...quick, '--concurrency', '1']);
    };
    const { stderr } = await budgeted();
    const [, next = ''] =
      /The budget of the batch clips of 1 is too low.* → mgw (batch .*)/.exec(stderr) ?? [];
    expect(stderr).not.toContain('--budget 1 is');
    expect(stderr).toContain('The rest of the batch needs a limit of 4.');
    expect(next).toBe('batch enqueue clips --again --budget 4');
    expect(await runHereAs(here, next.split(' '))).toMatchObject({ code: 0 });
    await place.query('update mgw.batch_rows set not_before = null');
    expect((await budgeted()).code).toBe(0);
    expect([...gateway.charges.values()]).toEqual([1, 1, 1, 1]);
  });

  it('a worker keeps to a budget that is lowered while it runs the batch', async () => {
    const user = machines.machine();
    await runHereAs(user, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
    await runHereAs(user, ['batch', 'enqueue', machines.manifest(6), '--budget', '50', '--concurrency', '1']);
    let answer = (): void => undefined;
    const until = new Promise<void>((resolve) => (answer = resolve));
    let count = 0;
    gateway.judge = () => ((count += 1) === 2 ? { kind: 'wait', until } : undefined);
    const worker = runHereAs(user, ['worker', ...machines.output, ...quick]);
    await expect.poll(() => gateway.posts().length).toBe(2);
    await runHereAs(user, ['batch', 'enqueue', 'clips', '--again', '--budget', '2']);
    // The search that finds the other batch also finds the new budget.
    const other = join(machines.shared, 'other.csv');
    writeFileSync(other, clips(['x', 'another boat']));
    await runHereAs(user, ['batch', 'enqueue', other]);
    await expect.poll(() => gateway.posts().length).toBe(3);
    answer();
    expect((await worker).code).toBe(11);
    expect(gateway.posts()).toHaveLength(3);
  });

  it('a batch keeps its budget and limits if another machine enqueues its file, and --again changes only the given ones', async () => {
    const file = machines.manifest(2);
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
    const file = machines.manifest(1);
    await runHereAs(here, ['batch', 'enqueue', file, '--budget', '15']);
    const other = machines.machine();
    other.env['MGW_BASE_URL'] = `${gateway.url}/other`;
    const refused = await runHereAs(other, ['batch', 'enqueue', file, '--budget', '1000']);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining(gateway.url)]);
    const { stderr } = await runHereAs(here, ['batch', 'enqueue', file]);
    expect(stderr).toContain('budget 15,');
    expect(JSON.parse(await place.query('select head from mgw.batches'))).toMatchObject({ budget: '15' });
    expect((await runHereAs(other, ['batch', 'status', 'clips'])).stdout).toContain('1 waiting');
  });

  it('a batch is enqueued and run at the same gateway, even if its address is spelled differently', async () => {
    const file = machines.manifest(2);
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1)]);
    const other = machines.machine();
    other.env['MGW_BASE_URL'] = gateway.url.replace('127.0.0.1', 'LOCALHOST');
    writeFileSync(file, clips(['row-0', 'a paper boat'], ['row-1', 'prompt 1']));
    const { code, json } = await runHereAs(other, ['batch', 'enqueue', file, '--json']);
    expect([code, json]).toMatchObject([0, { enqueued: 1, replaced: 1 }]);
    const args = ['worker', ...machines.output, ...quick];
    expect((await runHereAs(other, args, '', systemClock)).code).toBe(0);
    writeFileSync(file, clips(['row-0', 'a paper boat'], ['row-1', 'a paper hat']));
    const retry = ['batch', 'retry', file, '--changed', ...machines.output, '--poll-interval', '10ms'];
    expect((await runHereAs(other, retry)).code).toBe(0);
    expect(await place.query(`select content from mgw.batch_rows where id = 'row-1'`)).toContain(
      'a paper hat',
    );
    expect([...gateway.charges.keys()].sort()).toEqual(['a paper boat', 'a paper hat', 'prompt 1']);
  });

  it.each([
    ['a low budget', 11, undefined],
    ['an empty balance', 4, { kind: 'forbid', message: 'insufficient balance' }],
  ] as const)(
    'a worker still saves a row that is already paid for after %s stops the others',
    async (_, exitCode, deed) => {
      await runHereAs(here, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
      const file = join(machines.shared, 'clips.csv');
      writeFileSync(file, clips(['paid', 'a paper boat']));
      gateway.polls = Infinity;
      await runHereAs(here, ['batch', 'run', file, ...machines.output, '--timeout', '1s']);
      gateway.polls = 1;
      gateway.judge = () => deed;
      const others = [0, 1, 2, 3, 4, 5].map((n): [string, string] => [`new-${n}`, `boat ${n}`]);
      writeFileSync(file, clips(...others, ['paid', 'a paper boat']));
      const limits = ['--budget', deed === undefined ? '1' : '9', '--concurrency', '1'];
      await runHereAs(here, ['batch', 'enqueue', file, ...limits]);
      const worker = ['worker', ...machines.output, '--concurrency', '2', ...quick];
      const { code, stderr } = await runHereAs(here, worker, '', systemClock);
      expect(code, stderr).toBe(exitCode);
      expect(existsSync(join(machines.shared, 'out', 'paid.mp4'))).toBe(true);
      expect(gateway.charges).toEqual(new Map([['a paper boat', 1]]));
    },
  );

  it('a budget that `batch run` sets for an enqueued batch also limits workers', async () => {
    const user = machines.machine();
    await runHereAs(user, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
    const file = machines.manifest(5);
    await runHereAs(user, ['batch', 'enqueue', file]);
    const run = ['batch', 'run', file, ...machines.output, '--concurrency', '1', '--budget'];
    expect((await runHereAs(user, [...run, '1'])).code).toBe(12);
    const worker = ['worker', ...machines.output, '--poll-interval', '10ms', '--max-idle'];
    expect((await runHereAs(user, [...worker, '400ms'])).code).toBe(11);
    expect(gateway.posts()).toHaveLength(1);
    await place.query('update mgw.batch_rows set not_before = null');
    expect((await runHereAs(user, [...run, '2'])).code).toBe(12);
    expect(JSON.parse(await place.query('select head from mgw.batches'))).toMatchObject({ budget: '2' });
    expect((await runHereAs(user, [...worker, '400ms'])).code).toBe(11);
    expect(gateway.posts()).toHaveLength(2);
  });

  it('batch enqueue uses the budget of the last run rather than that of a YAML file', async () => {
    await runHereAs(here, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
    const file = join(machines.shared, 'clips.yaml');
    const rows = ['a', 'b'].map(
      (id) => `{id: ${id}, model: vendor-h3-mini, duration: 5, prompt: boat ${id}}`,
    );
    writeFileSync(file, `budget: 50\nrows: [${rows.join(', ')}]\n`);
    const run = ['batch', 'run', file, ...machines.output, '--concurrency', '1', '--budget', '1'];
    expect((await runHereAs(here, run)).code).toBe(12);
    for (const expected of ['budget 1,', 'budget 1,'])
      expect((await runHereAs(here, ['batch', 'enqueue', file])).stderr).toContain(expected);
    expect((await runHereAs(here, ['worker', ...machines.output, ...quick])).code).toBe(11);
    expect(gateway.posts()).toHaveLength(1);
  });

  it.each(['run', 'enqueue'])(
    'a budget that `batch %s` sets applies to later runs and to the queue on every machine',
    async (command) => {
      const file = machines.manifest(3);
      const other = machines.machine();
      for (const user of [here, other])
        await runHereAs(user, ['config', 'set', 'prices.c.vendor-h3-mini', 'video=1']);
      const output = command === 'run' ? machines.output : [];
      await runHereAs(here, ['batch', command, file, ...output, '--budget', '1']);
      const copy = join(other.cwd, 'clips.csv');
      copyFileSync(file, copy);
      const { code, stderr } = await runHereAs(other, ['batch', 'run', copy, ...machines.output]);
      expect(code, stderr).toBe(12);
      expect(stderr).toContain("Using the batch's last --budget: 1.");
      expect(gateway.charges.size).toBe(1);
      await runHereAs(other, ['batch', 'enqueue', copy]);
      expect(JSON.parse(await place.query('select head from mgw.batches'))).toMatchObject({ budget: '1' });
      await runHereAs(other, ['batch', 'enqueue', 'clips', '--again', '--budget', '2']);
      expect((await runHereAs(here, ['batch', 'run', file, ...machines.output])).code).toBe(12);
      expect(gateway.charges.size).toBe(2);
    },
  );

  // Whether the next submission must wait for a minute, and the number of slots.
  const limits = `select next_turn > clock_timestamp() + interval '10 seconds', (select count(*) from mgw.places) from mgw.paces`;

  it.each(['run clips', 'run FILE', 'retry FILE --id row-0'])(
    '`batch %s` for an enqueued batch uses the limits and the --sidecar of the queue',
    async (command) => {
      const file = machines.manifest(1);
      const options = ['--concurrency', '1', '--per-minute', '1', '--sidecar'];
      await runHereAs(here, ['batch', 'enqueue', file, ...options]);
      const words = command.split(' ').map((word) => (word === 'FILE' ? file : word));
      const run = ['batch', ...words, ...machines.output, '--poll-interval', '10ms'];
      expect((await runHereAs(machines.machine(), run)).code).toBe(0);
      expect(await place.query(limits)).toBe('t\t1');
      expect(existsSync(join(machines.shared, 'out', 'row-0.mp4.json'))).toBe(true);
    },
  );

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

  it('batch plan of an enqueued batch by its name does not report a different file', async () => {
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1)]);
    const { code, stderr } = await runHereAs(here, ['batch', 'plan', 'clips']);
    expect(code, stderr).toBe(0);
    expect(stderr).not.toContain('different file');
  });

  it('a worker that rows in doubt have stopped still pauses after each one if it resumes an accepted row', async () => {
    const file = join(machines.shared, 'clips.csv');
    const row = (id: string): [string, string] => [id, `boat ${id}`];
    writeFileSync(file, clips(row('accepted')));
    gateway.polls = Infinity;
    await runHereAs(here, ['batch', 'run', file, ...machines.output, '--timeout', '1s']);
    gateway.polls = 1;
    gateway.judge = () => ({ kind: 'lose' });
    writeFileSync(file, clips(...[0, 1, 2, 3, 4, 'accepted', 5, 6, 7, 8, 9].map((id) => row(String(id)))));
    await runHereAs(here, ['batch', 'enqueue', file, '--concurrency', '1']);
    const worker = ['worker', ...machines.output, '--max-idle', '65s'];
    // The test's clock is faster than the database's, so the lease must last longer than the pauses.
    const { stderr } = await runHereAs(machines.machine(place.url('lease=10m')), worker, '', hurried(200));
    const pauses = stderr.match(/Retrying in 60 s/g)?.length ?? 0;
    expect(pauses, stderr).toBeGreaterThan(1);
    expect(gateway.posts()).toHaveLength(1 + 5 + pauses - 1);
    expect(gateway.charges.get('boat accepted')).toBe(1);
  });

  it('a worker that rows in doubt have stopped runs speech in parallel again once a row is accepted', async () => {
    const file = join(machines.shared, 'clips.jsonl');
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
    const { stderr } = await runHereAs(machines.machine(place.url('lease=10m')), worker, '', hurried(200));
    const status = await runHereAs(here, ['batch', 'status', 'clips', '--json']);
    expect(status.json, stderr).toMatchObject({ batch: { states: { done: 3, unknown: 6 } } });
  });

  it("a worker uses the enqueuing machine's defaults, not its own", async () => {
    const rows = [
      { id: 'shown', protocol: 'c', model: 'vendor-h3-mini', prompt: 'a paper hat' },
      { id: 'spoken', protocol: 'tts', text: 'a paper boat at sea' },
    ];
    const file = join(machines.shared, 'clips.jsonl');
    writeFileSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    const other = machines.machine();
    for (const [user, duration, speaker] of [
      [here, '5', 'en_female_1'],
      [other, '10', 'zh_male_1'],
    ] as const) {
      await runHereAs(user, ['config', 'set', 'defaults.video.c.vendor-h3-mini.duration', duration]);
      await runHereAs(user, ['config', 'set', 'tts.speaker', speaker]);
    }
    expect(await runHereAs(here, ['batch', 'enqueue', file])).toMatchObject({ code: 0 });
    expect(await runHereAs(other, ['worker', ...machines.output, ...quick])).toMatchObject({ code: 0 });
    const [video, speech] = ['a paper hat', 'a paper boat at sea'].map((text) =>
      gateway
        .posts()
        .map(({ body }) => body)
        .find((body) => body.includes(text)),
    );
    expect([video, speech]).toEqual([
      expect.stringContaining('"duration":5'),
      expect.stringContaining('"speaker":"en_female_1"'),
    ]);
    expect(await runHereAs(here, ['batch', 'run', file, ...machines.output])).toMatchObject({ code: 0 });
    expect([...gateway.charges.values()]).toEqual([1, 1]);
  });

  it('a worker runs a row once if its lease ends while the row waits for a slot', async () => {
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1), '--concurrency', '1']);
    await place.query(`insert into mgw.paces (batch, most) values ('clips', 1)`);
    await place.query(
      `with lease as (insert into mgw.leases (instance, host, pid, until) values ('x', 'x', 1, 'infinity') returning id)
       insert into mgw.places (batch, number, lease) select 'clips', 1, id from lease`,
    );
    const clock = stoppable(systemClock);
    const worker = runHereAs(machines.machine(), ['worker', ...machines.output, ...quick], '', clock);
    await expect.poll(rowsInQueue).toBe('row-0\ttaken');
    await place.query(`update mgw.leases set until = clock_timestamp() where instance <> 'x'`);
    clock.stop(31_000);
    await expect.poll(rowsInQueue).toBe('row-0\twaiting');
    await place.query('update mgw.places set lease = null');
    const { code, stderr } = await worker;
    expect([code, stderr]).toEqual([0, expect.stringContaining('1 done; 1 file saved')]);
  });

  it('a worker quarantines a row after five workers die while running it, and runs it again on request', async () => {
    gateway.polls = Infinity;
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(1)]);
    await place.query('update mgw.batch_rows set lost = 4');
    // Wait until the worker has queried the task. If the worker were killed before the response to its submission
    // arrived, the row would be in doubt.
    const polled = new Promise<void>((resolve) => {
      gateway.before = ({ path }) => {
        if (path.includes('/task-')) resolve();
      };
    });
    const worker = machines.machine().start(['worker', ...machines.output, ...quick]);
    await polled;
    const isInHand = `select count(*) from mgw.batch_rows where state = 'taken' and lost = 4`;
    expect(await place.query(isInHand)).toBe('1');
    worker.child.kill('SIGKILL');
    await worker.result;
    await place.query('update mgw.leases set until = clock_timestamp()');
    const { stderr } = await work();
    expect(stderr).toContain(
      'clips/row-0 quarantined: five workers died while running it → mgw batch enqueue clips --again',
    );
    expect(await rowsInQueue()).toBe('row-0\tquarantined');
    const status = await runHereAs(here, ['batch', 'status', 'clips', '--json']);
    expect(status.json['queue']).toMatchObject({ quarantined: [{ id: 'row-0' }] });
    const { stdout } = await runHereAs(here, ['--allow-http', 'batch', 'status', 'clips']);
    expect(stdout).toContain('→ mgw --allow-http batch enqueue clips --again');
    gateway.polls = 1;
    const again = await runHereAs(here, ['batch', 'enqueue', 'clips', '--again']);
    expect(again.code).toBe(0);
    expect((await work()).code).toBe(0);
    expect(existsSync(join(machines.shared, 'out', 'row-0.mp4'))).toBe(true);
    expect(gateway.charges.get('prompt 0')).toBe(1);
  });

  it("a worker reports its health, each row's outcome, and the totals", async () => {
    gateway.judge = (prompt) => (prompt === 'prompt 1' ? { kind: 'doom' } : undefined);
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(2)]);
    const health = join(machines.shared, 'alive');
    const results = join(machines.shared, 'results.jsonl');
    const { code, json, stderr } = await work('--health-file', health, '--results', results, '--json');
    expect(code).toBe(11);
    expect(json['worker']).toMatchObject({ rows: 2, states: { done: 1, failed: 1 }, files: 1 });
    expect(stderr).toContain('clips/row-1 failed');
    expect(stderr).toMatch(/mgw batch retry clips -o '\S+' --results \S+ --id row-1\n/);
    expect(JSON.parse(readFileSync(health, 'utf8'))).toHaveProperty('at');
    expect(readFileSync(results, 'utf8').split('\n')).toHaveLength(3);
    const retried = await runHereAs(here, [
      ...['batch', 'retry', 'clips', '--failed', ...machines.output, '--poll-interval', '10ms'],
    ]);
    expect(retried.code).toBe(11);
    expect(gateway.charges.get('prompt 1')).toBe(2);
  });

  it("a worker reports the gateway's rate limit only once", async () => {
    let posts = 0;
    gateway.judge = () => ((posts += 1) < 12 && posts % 3 !== 0 ? { kind: 'limit' } : undefined);
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(6), '--concurrency', '4']);
    const { code, stderr } = await work();
    expect([code, gateway.charges.size]).toEqual([0, 6]);
    expect(stderr.match(/the gateway limits parallel tasks/g)).toHaveLength(1);
  });

  it('a worker survives a database outage', async () => {
    const proxy = await CuttingProxy.open(place.port);
    const state = place.url('connect_timeout=1', proxy.port);
    const health = join(here.cwd, 'health');
    const args = ['worker', ...machines.output, '--poll-interval', '10ms', '--health-file', health];
    const { child, result } = machines.machine(state).start(args);
    // The worker is now looking for rows.
    await expect.poll(() => existsSync(health)).toBe(true);
    const retryNote = text(child.stderr, /Retrying/);
    proxy.down();
    await retryNote;
    proxy.up();
    await runHereAs(here, ['batch', 'enqueue', machines.manifest(3)]);
    await expect.poll(rowsInQueue).toBe('row-0\tended\nrow-1\tended\nrow-2\tended');
    child.kill('SIGTERM');
    expect((await result).code).toBe(143);
    expect([...gateway.charges.values()]).toEqual([1, 1, 1]);
  });

  // Resolves once a run has printed the expected text.
  function text(stream: NodeJS.ReadableStream, wanted: RegExp): Promise<void> {
    let said = '';
    return new Promise((resolve) => {
      stream.on('data', (bytes: Buffer) => {
        said += bytes.toString();
        if (wanted.test(said)) resolve();
      });
    });
  }
});

describe('the command line without a shared ledger', () => {
  it.each([[['worker']], [['batch', 'enqueue', 'clips.csv']]])('refuses the command %j', async (args) => {
    const user = userHere('http://127.0.0.1:9');
    writeFileSync(join(user.cwd, 'clips.csv'), clips(['a', 'a paper boat']));
    const { code, stderr } = await user.run(args);
    expect([code, stderr]).toEqual([2, expect.stringContaining('MGW_STATE')]);
  });
});

it.each(['@/etc/passwd', '', 5, null, ['@/etc/passwd'], undefined])(
  'a queued row is reported as damaged if its body is not an object: %j',
  (body) => {
    const row = { id: 'a', index: 1, line: 2, kind: 'c', tags: [] };
    expect(() => parseRow('a', JSON.stringify({ ...row, body: { model: 'm' } }))).not.toThrow();
    expect(() => parseRow('a', JSON.stringify({ ...row, body }))).toThrow('in the queue is damaged');
  },
);

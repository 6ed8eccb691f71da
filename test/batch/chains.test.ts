import { existsSync, rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { onEnd } from '../support/clean-ups.ts';
import { runHereAs } from '../support/one-process.ts';
import { account, s3Server } from '../store/s3-server.ts';
import { shortWait } from './scene.ts';
import { chain, installFrames, openStory, type Story, story } from './story.ts';

let scene: Story;
beforeEach(async () => {
  scene = await openStory();
});
afterEach(() => scene.gateway.close());

describe('a row that starts with the last frame of another row', () => {
  beforeEach(() => installFrames(scene));

  it("waits for that row, regardless of the order of the rows, and sends that row's last frame", async () => {
    const file = scene.file('m.csv', story(['s3', '@s2:last'], ['s2', '@m/s1:last'], ['s1'], ['x']));
    const plan = await scene.batch('plan', file);
    expect(plan.stdout).toMatch(/s2 new: after s1\n.*s3 new: after s2/);
    const ran = await scene.batch('run', file);
    expect(ran.code, ran.stderr).toBe(0);
    expect(scene.charges()).toEqual({ s1: 1, s2: 1, s3: 1, x: 1 });
    const frames = scene.frames();
    expect([...frames.keys()]).toEqual(expect.arrayContaining(['s1', 's2', 's3', 'x']));
    expect(frames.get('s1')).toBeUndefined();
    expect(frames.get('s2')).toBe(scene.lastFrame('s1'));
    expect(frames.get('s3')).toBe(scene.lastFrame('s2'));
    expect(scene.lastFrame('s1')).not.toBe(scene.lastFrame('s2'));
    const status = await scene.read('status', file);
    expect(status.rows.map(({ id, state }) => [id, state])).toEqual(
      ['s3', 's2', 's1', 'x'].map((id) => [id, 'done']),
    );
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    expect(scene.gateway.posts()).toHaveLength(4);
  });

  it('sends the frame as a stored object with Protocols B and C', async () => {
    const store = await s3Server();
    Object.assign(scene.user.env, account);
    for (const [name, value] of [
      ['store', 's3://bucket/in'],
      ['store.endpoint', store.url],
    ] as const)
      await runHereAs(scene.user, ['config', 'set', name, value]);
    const rows = [
      's1,c,vendor-h3,,,',
      's2,b,Kling,@s1:last,,',
      's3,c,vendor-h3,,@s2:last,',
      's4,c,vendor-h3,,,@s3',
    ];
    const lines = rows.map((row) => `${row},${row.slice(0, 2)},5`);
    const head = 'id,protocol,model,first_frame,image,reference_video,prompt,duration';
    const file = scene.file('m.csv', [head, ...lines, ''].join('\n'));
    const ran = await scene.batch('run', file);
    expect(ran.code, ran.stderr).toBe(0);
    expect(scene.charges()).toEqual({ s1: 1, s2: 1, s3: 1, s4: 1 });
    const urls = scene.gateway.posts().map(({ body }) => /http[^"]+X-Amz[^"]+/.exec(body)?.[0] ?? '');
    const [frame2, frame3, video] = await Promise.all(urls.slice(1).map((url) => store.get(url)));
    expect(Buffer.from(frame2 as Buffer).toString('base64')).toBe(scene.lastFrame('s1'));
    expect(Buffer.from(frame3 as Buffer).toString('base64')).toBe(scene.lastFrame('s2'));
    expect(Buffer.from(video as Buffer)).toEqual(Buffer.from(scene.film('s3')));
  });

  it('starts as soon as that row is done, while independent rows continue', async () => {
    let release = (): void => undefined;
    const until = new Promise<void>((resolve) => (release = resolve));
    scene.gateway.judge = (prompt) => {
      if (prompt === 's2') release();
      return prompt === 'slow' ? { kind: 'wait', until } : undefined;
    };
    const file = scene.file('m.csv', story(['slow'], ...chain(2)));
    expect(await scene.batch('run', file, '--concurrency', '2')).toMatchObject({ code: 0 });
  });

  it('is blocked at no charge if that row fails, in a run or a retry, and runs once that row has been remade', async () => {
    const file = scene.file('m.csv', story(...chain(3), ['x']));
    scene.gateway.judge = (prompt) => (prompt === 's1' ? { kind: 'doom' } : undefined);
    const ran = await scene.read('run', file);
    expect(ran).toMatchObject({ exit_code: 11, batch: { states: { failed: 1, blocked: 2, done: 1 } } });
    const retry = expect.arrayContaining(['retry', '--id', 's1']) as string[];
    expect(ran.rows).toMatchObject([
      { id: 's1', state: 'failed' },
      { id: 's2', state: 'blocked', message: 'it waits for s1, which is failed', next: retry },
      { id: 's3', state: 'blocked', message: 'it waits for s1, which is failed', next: retry },
    ]);
    for (const command of ['run', 'status'])
      expect((await scene.read(command, file)).batch.states).toMatchObject({ failed: 1, blocked: 2 });
    expect(scene.charges()).toEqual({ s1: 1, x: 1 });
    scene.gateway.judge = () => undefined;
    expect(await scene.batch('retry', file, '--failed')).toMatchObject({ code: 0 });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    expect(scene.charges()).toEqual({ s1: 2, s2: 1, s3: 1, x: 1 });
    scene.gateway.judge = (prompt) => (prompt === 's1' ? { kind: 'doom' } : undefined);
    const again = await scene.read('retry', file, '--id', 's1', '--id', 's2');
    expect(again).toMatchObject({ exit_code: 11, batch: { states: { failed: 1, blocked: 1 } } });
    expect(scene.charges()).toEqual({ s1: 3, s2: 1, s3: 1, x: 1 });
  });

  it('is blocked, and does not stop other rows, if that row delivered fewer videos than it requested', async () => {
    const rows = ['s1,s1,2,', 's2,s2,1,@s1#2:last', 's3,s3,1,@s2:last', 's4,s4,1,'];
    const head = 'id,prompt,sample-count,image,protocol,model,duration,resolution';
    const file = scene.file('m.csv', [head, ...rows.map((row) => `${row},a,veo-3,4,720p`)].join('\n'));
    const ran = await scene.batch('run', file, '--json');
    const next = expect.arrayContaining(['retry', '--id', 's1']) as string[];
    const blocked = { state: 'blocked', message: 's1 did not deliver video 2', next };
    expect(ran.json).toMatchObject({
      exit_code: 11,
      rows: ['s2', 's3'].map((id) => ({ id, ...blocked })),
    });
    expect(ran.stderr).toMatch(/^→ mgw batch retry .*--id s1$/m);
    expect(scene.charges()).toEqual({ s1: 1, s4: 1 });
    scene.gateway.samples = 2;
    expect(await scene.batch('retry', file, '--id', 's1')).toMatchObject({ code: 0 });
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    expect(scene.charges()).toEqual({ s1: 2, s2: 1, s3: 1, s4: 1 });
  });

  it('is paid for once, even if a run ends while the gateway generates a video, or is killed while a file is saved', async () => {
    const file = scene.file('m.csv', story(...chain(3)));
    scene.gateway.polls = Infinity;
    expect(await scene.batch('run', file, ...shortWait)).toMatchObject({ code: 11 });
    scene.gateway.polls = 0;
    const run = ['batch', 'run', file, '-o', scene.at('{id}.{ext}'), '--poll-interval', '10ms'];
    await scene.killedAt(run, /GET .file/, 2);
    const ran = await scene.batch('run', file);
    expect(ran.code, ran.stderr).toBe(0);
    expect(scene.charges()).toEqual({ s1: 1, s2: 1, s3: 1 });
    for (const [one, next] of [
      ['s1', 's2'],
      ['s2', 's3'],
    ] as const)
      expect(scene.frames().get(next)).toBe(scene.lastFrame(one));
  });

  it('becomes stale if that row is remade, as do all rows that depend on it, and `batch retry --stale` pays for each of them once', async () => {
    const file = scene.file('m.csv', story(...chain(4)));
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    await runHereAs(scene.user, ['jobs', 'rate', '@m/s2', '1']);
    expect(await scene.batch('retry', file, '--rated', '1')).toMatchObject({ code: 0 });
    const status = await scene.read('status', file);
    expect(status).toMatchObject({ exit_code: 11, batch: { states: { done: 2, stale: 2 } } });
    const ran = await scene.batch('run', file);
    expect(ran).toMatchObject({ code: 11, stderr: expect.stringContaining('--stale') as string });
    expect(scene.charges()).toEqual({ s1: 1, s2: 2, s3: 1, s4: 1 });

    scene.gateway.polls = Infinity;
    expect(await scene.batch('retry', file, '--stale', ...shortWait)).toMatchObject({ code: 11 });
    scene.gateway.polls = 0;
    const again = await scene.batch('retry', file, '--stale');
    expect(again.code, again.stderr).toBe(0);
    for (const [one, next] of [
      ['s2', 's3'],
      ['s3', 's4'],
    ] as const)
      expect(scene.frames().get(next)).toBe(scene.lastFrame(one));
    expect((await scene.read('status', file)).batch.states).toMatchObject({ done: 4, stale: 0 });
    expect(await scene.batch('retry', file, '--stale')).toMatchObject({ code: 0, stdout: '' });
    expect(scene.charges()).toEqual({ s1: 1, s2: 2, s3: 2, s4: 2 });
  });

  it('is not stale, and can be remade, if a retry of that row was refused', async () => {
    const file = scene.file('m.csv', story(...chain(3)));
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    scene.gateway.judge = () => ({ kind: 'refuse' });
    expect(await scene.batch('retry', file, '--id', 's1')).toMatchObject({ code: 11 });
    expect((await scene.read('status', file)).batch.states).toMatchObject({ done: 3 });
    scene.gateway.judge = () => undefined;
    expect(await scene.batch('retry', file, '--id', 's2')).toMatchObject({ code: 0 });
    scene.gateway.judge = () => ({ kind: 'refuse' });
    const stale = await scene.read('retry', file, '--stale');
    expect(stale).toMatchObject({ exit_code: 11, rows: [{ id: 's3', state: 'rejected' }] });
    scene.gateway.judge = () => undefined;
    expect(await scene.batch('retry', file, '--stale')).toMatchObject({
      code: 0,
      stdout: `${scene.at('s3.2.mp4')}\n`,
    });
    expect(scene.charges()).toEqual({ s1: 1, s2: 2, s3: 2 });
  });

  it('is not remade by its id while that row is stale or changed, and the command that remakes that row is suggested', async () => {
    const file = scene.file('m.csv', story(...chain(3)));
    await scene.batch('run', file);
    await scene.batch('retry', file, '--id', 's1');
    const retried = async (id: string): Promise<unknown> => {
      const { code, stderr } = await scene.batch('retry', file, '--id', id);
      return [code, /^line .*/m.exec(stderr)?.[0], [...stderr.matchAll(/→ .*/g)].map(([next]) => next)];
    };
    const next = (flags: string): unknown => [expect.stringMatching(`retry .*[}]' ${flags}$`)];
    const blocked = 'line 4: s3 blocked: it waits for s2, which is stale';
    expect(await retried('s3')).toEqual([11, blocked, next('--id s2')]);
    scene.file('m.csv', story(['s1', '', 'other'], ...chain(3).slice(1)));
    expect(await retried('s2')).toEqual([
      11,
      'line 3: s2 blocked: it waits for s1, which is changed',
      next('--id s1'),
    ]);
    expect(scene.charges()).toEqual({ s1: 2, s2: 1, s3: 1 });
  });

  it('is fetched, and then marked as stale, if it was paid for before that row was remade', async () => {
    const file = scene.file('m.csv', story(...chain(2)));
    scene.gateway.judge = (prompt) => void (scene.gateway.polls = prompt === 's2' ? Infinity : 0);
    expect(await scene.batch('run', file, ...shortWait)).toMatchObject({ code: 11 });
    expect(await scene.batch('retry', file, '--id', 's1')).toMatchObject({ code: 0 });
    await scene.batch('run', file);
    expect(existsSync(scene.at('s2.mp4'))).toBe(true);
    expect(await scene.read('status', file)).toMatchObject({ batch: { states: { done: 1, stale: 1 } } });
    expect(scene.charges()).toEqual({ s1: 2, s2: 1 });
  });

  it('is still done if it was paid for before the job of its input was removed', async () => {
    const intro = ['intro', '-m', 'veo-3', '--duration', '8', '--key', 'intro', '-o', scene.at('intro.mp4')];
    await runHereAs(scene.user, ['video', 'a', 'submit', ...intro, '--poll-interval', '10ms']);
    const file = scene.file('m.csv', story(['s2', '@intro:last']));
    expect((await scene.batch('run', file)).code).toBe(0);
    expect((await runHereAs(scene.user, ['jobs', 'rm', '@intro', '--force'])).code).toBe(0);
    expect((await scene.read('plan', file)).batch).toMatchObject({ states: { done: 1 }, bad: 0 });
    expect((await scene.batch('run', file)).code).toBe(0);
    scene.file('m.csv', story(['s2', '@intro:last'], ['s3', '@intro:last']));
    expect((await scene.batch('run', file)).stderr).toContain('m.csv:3: No such job: @intro');
    expect(scene.charges()).toEqual({ intro: 1, s2: 1 });
  });

  it('is reported as changed rather than stale if the rest of its request also differs', async () => {
    const file = scene.file('m.csv', story(...chain(2)));
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    scene.file('m.csv', story(['s1', '', 'other'], ['s2', '@s1:last', 'another']));
    expect((await scene.read('status', file)).batch.states).toMatchObject({ changed: 2 });
    expect(await scene.batch('retry', file, '--changed')).toMatchObject({ code: 0 });
    expect(scene.frames().get('another')).toBe(scene.lastFrame('other'));
  });

  it('makes the command exit with 2, before anything is paid for, if ffmpeg is not installed', async () => {
    const file = scene.file('m.csv', story(...chain(2)));
    vi.stubEnv('PATH', scene.user.cwd);
    onEnd(() => void vi.unstubAllEnvs());
    for (const command of ['plan', 'run']) {
      const ran = await scene.batch(command, file);
      expect([ran.code, ran.stderr]).toEqual([2, expect.stringContaining('package ffmpeg')]);
    }
    expect(scene.gateway.posts()).toHaveLength(0);
  });
});

describe("the last frame of an earlier job's video", () => {
  beforeEach(() => installFrames(scene));
  let file = '';
  beforeEach(async () => {
    const words = ['video', 'a', 'submit', '--model', 'veo-3', '--duration', '8', 's1', '--key', 'intro'];
    const output = ['-o', scene.at('intro.mp4'), '--poll-interval', '10ms'];
    const made = await runHereAs(scene.user, [...words, ...output]);
    expect(made.code, made.stderr).toBe(0);
    rmSync(scene.at('intro.mp4'));
    file = scene.file('m.csv', story(['s2', '@intro:last']));
  });

  it('makes a run, but neither a plan nor a status, fetch the video again if it is missing', async () => {
    expect(await scene.batch('plan', file)).toMatchObject({ code: 0 });
    expect(await scene.batch('status', file)).toMatchObject({ code: 11 });
    expect(existsSync(scene.at('intro.mp4'))).toBe(false);
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    expect(scene.frames().get('s2')).toBe(scene.lastFrame('s1'));
  });

  it('fails only the rows that use it, before they are submitted, if a different file replaces the video', async () => {
    scene.file('intro.mp4', 'edited');
    scene.file('m.csv', story(['s2', '@intro:last'], ['x']));
    const { rows } = await scene.read('run', file, '--concurrency', '1');
    expect(rows).toMatchObject([{ id: 's2', state: 'new' }]);
    expect(scene.charges()).toEqual({ s1: 1, x: 1 });
    const [program, ...fetch] = rows[0]?.next ?? [];
    expect([program, (await runHereAs(scene.user, fetch)).code]).toEqual(['mgw', 0]);
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
  });
});

describe('a reference between rows', () => {
  it.each([
    [
      'is part of a cycle',
      [
        ['s1', '@s3:last'],
        ['s2', '@s1:last'],
        ['s3', '@s2:last'],
      ],
      /:2: .*each other: s1 → s3 → s2 → s1/,
    ],
    ['refers to its own row', [['s1', '@s1:last']], /:2: .*s1 → s1/],
    ['contains a name that no row has', [['s1'], ['s2', '@intro:last']], /:3: .*@intro/],
    [
      'refers to the newest job',
      [['s1'], ['s2', '@last:last']],
      /:3: image: @last refers to a different job after each run/,
    ],
    ['uses a whole video as an image', [['s1'], ['s2', '@s1']], /:3: image @s1: this flag requires an image/],
    [
      'refers to a sample that the other row does not make',
      [['s1'], ['s2', '@s1#2:last']],
      /:3: image @s1#2:last: s1 makes only 1 video/,
    ],
  ] as const)('causes an error with a line number if it %s', async (_, rows, message) => {
    const file = scene.file('m.csv', story(...(rows as unknown as [string, string?][])));
    const ran = await scene.batch('run', file);
    expect([ran.code, ran.stderr]).toEqual([2, expect.stringMatching(message)]);
    expect(scene.gateway.posts()).toHaveLength(0);
  });

  it('blocks the row that contains it if it refers to an invalid row that --skip-bad skips', async () => {
    const file = scene.file('m.csv', story(['s1', 'none.png'], ['s2', '@s1:last']));
    const ran = await scene.read('run', file, '--skip-bad');
    expect(ran.rows).toMatchObject([{ id: 's2', state: 'blocked' }]);
    expect(scene.gateway.posts()).toHaveLength(0);
  });
});

import { readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readBill, totalOf } from '../../src/sandbox/bill.ts';
import { startSandbox } from '../../src/sandbox/server.ts';
import { onEnd } from '../support/clean-ups.ts';
import type { CliResult, User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { freshFolder } from '../support/servers.ts';

/** Runs commands one after the other, and returns their exit codes. */
async function runAll(user: User, commands: string[][]): Promise<number[]> {
  const codes: number[] = [];
  for (const command of commands) codes.push((await user.run(command)).code);
  return codes;
}

const c = (prompt: string, ...more: string[]): string[] => [
  ...['video', 'c', 'submit', prompt, '--model', 'vendor-h3-mini', '--duration', '5', ...more],
];

it('mgw spend matches the bill of the gateway to the last digit, even after many failures and an import of the jobs', async () => {
  const stateDir = freshFolder();
  const faults = ['task-failsx1', 'tts-cut@50%x1', 'tts-error-frame@50%x1', 'poll-502x2'];
  const sandbox = await startSandbox({ stateDir, paceMs: 100, faults });
  onEnd(() => sandbox.close());
  const user = userHere(undefined, { MGW_SANDBOX: sandbox.url });
  const pieces = [
    'tts',
    'One sentence. Another one. A third, with words.',
    '--split',
    '--piece-length',
    '15',
  ];
  // The rerun does not retry failed rows.
  await runAll(user, [
    ['video', 'c', 'submit', 'one', '--model', 'vendor-h3-mini', '-o', '1.mp4'],
    ['video', 'c', 'submit', 'two', '--model', 'vendor-h3', '--resolution', '2K', '-o', '2.mp4'],
    ['video', 'a', 'submit', 'three', '--model', 'video-a', '--sample-count', '2', '-o', '3.mp4'],
    ['video', 'a', 'submit', 'four', '--model', 'video-a-fast', '--duration', '4', '-o', '4.mp4'],
    ['video', 'b', 'submit', 'five', '--model', 'Video-B', '--model-version', '1.0', '-o', '5.mp4'],
    ['tts', 'Good morning, all of you.', '-o', '6.mp3'],
    ['tts', 'Good evening to you.', '-o', '7.mp3'],
    ['tts', '春眠 不觉晓 🚤', '-o', '8.mp3'],
    [...pieces, '-o', '9.mp3'],
    [...pieces, '-o', '9.mp3'],
    ['video', 'c', 'submit', 'left alone', '--model', 'vendor-h3-mini'],
  ]);
  const bill = readBill(stateDir);
  const totals = (await user.run(['spend', '--json'])).json['total'] as Record<string, object>;
  const kept = bill.filter(({ refunded }) => !refunded);
  expect(totals['spent']).toEqual({ charges: kept.length, amount: String(totalOf(bill)) });
  expect(totals['failed']).toMatchObject({ charges: 1 });
  expect(kept).toHaveLength(12);

  const { stdout } = await user.run(['jobs', 'export']);
  const env = { MGW_STATE_DIR: join(user.cwd, 'other') };
  expect((await user.run(['jobs', 'import', '-'], { stdin: stdout, env })).code).toBe(0);
  expect((await user.run(['spend', '--json'], { env })).json['total']).toEqual(totals);
});

describe('a standing budget', () => {
  it('limits the total of all payments, and can be raised', async () => {
    const user = userHere(undefined, { MGW_SANDBOX: '1' });
    await user.run(['budget', 'set', 'clips', '20']);
    await user.run(['config', 'set', 'budget', 'clips']);
    expect(await runAll(user, [c('one'), c('two')])).toEqual([0, 0]);
    const refused = await user.run([...c('three'), '--json']);
    expect(refused.code).toBe(12);
    expect(refused.json.error).toMatchObject({
      code: 'budget',
      charged: 'no',
      retry: 'safe',
      next: ['mgw', 'budget', 'set', 'clips', '30'],
      budget: { name: 'clips', limit: '20', spent: '20', left: '0', cost_at_most: '10', exceeded_by: '10' },
    });
    const others = [
      ['tts', 'hello', '-o', 'hello.mp3'],
      ['responses', 'hello', '--model', 'text-1'],
      ['api', 'POST', '/v1/responses', '--body', '{}'],
      c('one', '--new'),
    ];
    expect(await runAll(user, others)).toEqual([12, 12, 12, 12]);
    expect(((await user.run(['sandbox', 'bill', '--json'])).json['bill'] as unknown[]).length).toBe(2);
    await user.run(['budget', 'set', 'clips', '30']);
    expect(await runAll(user, [c('three')])).toEqual([0]);
    expect((await user.run(['budget', 'ls', '--json'])).json['budgets']).toEqual([
      { name: 'clips', limit: '30', spent: '30', reserved: '0', left: '0' },
    ]);
    expect(await runAll(user, [['budget', 'rm', 'clips'], ['budget', 'rm', 'clips'], c('four')])).toEqual([
      0, 2, 0,
    ]);
  }, 60_000);

  it('blocks every payment if its limit was never set', async () => {
    const user = userHere(undefined, { MGW_SANDBOX: '1' });
    const refused = await user.run([...c('one'), '--budget-name', 'clips', '--json']);
    expect(refused.json.error).toMatchObject({
      code: 'usage',
      next: ['mgw', 'budget', 'set', 'clips', 'AMOUNT'],
    });
    expect((await user.run(['sandbox', 'bill', '--json'])).json['total']).toBe(0);
  });
});

it('a damaged budget does not hide the others, and every command that needs it prints a command that moves it away', async () => {
  const user = userHere(undefined, { MGW_SANDBOX: '1' });
  const damage = (file: RegExp): void => {
    const folder = user.env['MGW_STATE_DIR'] ?? '';
    const names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
    const path = join(folder, names.find((name) => file.test(name)) ?? '');
    writeFileSync(path, readFileSync(path, 'utf8').replace('"amount":"1', '"amount":"7'));
  };
  const moveAway = async (command: string[]): Promise<unknown> => {
    const { json } = await user.run([...command, '--json']);
    const { code, next } = json.error as unknown as { code: string; next: string[] };
    expect([json['exit_code'], code, next[0]]).toEqual([10, 'local_io', 'mv']);
    renameSync(next[1] ?? '', next[2] ?? '');
    return json['budgets'];
  };
  const commands = [
    ['budget', 'ls'],
    ['budget', 'rm', 'clips'],
    ['budget', 'set', 'clips', '20'],
  ];
  const songs = { name: 'songs', limit: '5', spent: '0', reserved: '0', left: '5' };
  for (const command of commands) {
    await runAll(user, [
      ['budget', 'set', 'clips', '15'],
      ['budget', 'set', 'songs', '5'],
    ]);
    damage(/standing.clips\.jsonl$/);
    const budgets = await moveAway(command);
    if (command[1] === 'ls') expect(budgets).toEqual([{ name: 'clips', unusable: true }, songs]);
    expect((await user.run(['budget', 'ls', '--json'])).json['budgets']).toEqual([songs]);
  }
  const take = c('one', '--budget', '15');
  expect(await runAll(user, [take])).toEqual([0]);
  damage(/command.*\.jsonl$/);
  await moveAway([...take, '--new']);
  expect(await runAll(user, [[...take, '--new']])).toEqual([0]);
}, 60_000);

it('budgets count the payments of imported jobs once, but not those of other jobs or of a budget that is not set here', async () => {
  const user = userHere(undefined, { MGW_SANDBOX: '1' });
  const take = (...more: string[]): string[] => c('one', '--budget', '15', ...more);
  await runAll(user, [
    ['budget', 'set', 'clips', '90'],
    ['budget', 'set', 'songs', '90'],
  ]);
  expect(
    await runAll(user, [
      [...take(), '--budget-name', 'clips'],
      [...c('two'), '--budget-name', 'songs'],
    ]),
  ).toEqual([0, 0]);
  const { stdout } = await user.run(['jobs', 'export']);
  const importTo = async (folder: string, text: string): Promise<unknown> => {
    const env = { MGW_STATE_DIR: join(user.cwd, folder) };
    await user.run(['budget', 'set', 'clips', '90'], { env });
    expect((await user.run(['jobs', 'import', '-'], { stdin: text, env })).code).toBe(0);
    return (await user.run(['budget', 'ls', '--json'], { env })).json['budgets'];
  };
  const unspent = { name: 'clips', limit: '90', spent: '0', reserved: '0', left: '90' };
  const forged = stdout.replace(/"reservation":"job_/g, '"reservation":"job_x');
  expect(await importTo('forged', forged)).toEqual([unspent]);
  const undated = stdout.replaceAll(/"at":"[^"]*",/g, '');
  expect(await importTo('undated', undated)).toEqual([{ ...unspent, spent: '10', left: '80' }]);
  const zeros = stdout.replaceAll('"at_most":"', '"at_most":"0');
  expect((await user.run(['jobs', 'import', '-'], { stdin: zeros })).code).toBe(2);
  for (const text of [stdout + stdout, stdout])
    expect(await importTo('other', text)).toEqual([{ ...unspent, spent: '10', left: '80' }]);
  const env = { MGW_STATE_DIR: join(user.cwd, 'other') };
  const again = (): Promise<CliResult> => user.run(['jobs', 'import', '-'], { stdin: stdout, env });
  expect((await again()).stderr).toContain('mgw budget set songs AMOUNT');
  await user.run(['budget', 'set', 'songs', '90'], { env });
  expect((await again()).stderr).not.toContain('songs');
  const both = (await user.run(['budget', 'ls', '--json'], { env })).json['budgets'];
  expect(both).toMatchObject([{ spent: '10' }, { name: 'songs', spent: '10' }]);
  expect((await user.run(take('--new'), { env })).code).toBe(12);
}, 60_000);

it('--budget limits the total cost of all takes of a command, and of all pieces of split text', async () => {
  const user = userHere(undefined, { MGW_SANDBOX: '1' });
  const take = (...more: string[]): string[] => c('one', '--budget', '15', ...more);
  expect(await runAll(user, [take(), take(), take('--new'), c('one', '--budget', '20', '--new')])).toEqual([
    0, 12, 12, 0,
  ]);
  const text = 'One sentence. Another one. A third one.';
  const split = ['tts', text, '--split', '--piece-length', '15', '--concurrency', '1', '-o', 'x.mp3'];
  const refused = await user.run([...split, '--budget', '0.4', '--json']);
  expect(refused.json).toMatchObject({ exit_code: 12, error: { code: 'budget', charged: 'no' } });
  const bill = async (): Promise<unknown> => (await user.run(['sandbox', 'bill', '--json'])).json['bill'];
  expect(await bill()).toHaveLength(2);
  expect((await user.run(refused.json.error.next?.slice(1) ?? [])).code).toBe(0);
  expect(await bill()).toHaveLength(5);
}, 60_000);

describe('prices', () => {
  it('are validated when set, and are printed by `config list` and by a dry run', async () => {
    const user = userHere('http://127.0.0.1:9');
    const set = (key: string, ...words: string[]): string[] => ['config', 'set', key, ...words];
    const wrong = await user.run(set('prices.c.vendor-h3-mini', 'seconds=0.12'));
    expect(wrong.code).toBe(2);
    expect(wrong.stderr).toContain('seconds is not a unit; allowed: second, video');
    const bad = [
      set('prices.tts', 'second=1'),
      set('prices.user_multiplier', '-1'),
      set('prices.c', 'second=1'),
    ];
    expect(await runAll(user, bad)).toEqual([2, 2, 2]);
    await user.run(set('prices.c.vendor-h3', 'second=0.20', 'resolution=2K: second=0.40'));
    await user.run(set('prices.tts', '10k_characters=3'));
    await user.run(set('prices.user_multiplier', '1.1'));
    const settings = (await user.run(['config', 'list', '--json'])).json['settings'];
    expect(settings).toContainEqual({
      key: 'prices.c.vendor-h3',
      value: 'second=0.20; resolution=2K: second=0.40',
      source: 'profile',
      name: 'default',
    });
    const dry = 'video c submit boat --model vendor-h3 --duration 5 --dry-run --json'.split(' ');
    expect((await user.run([...dry, '--resolution', '2K'])).json['cost']).toEqual({ at_most: '2.2' });
    expect((await user.run(dry)).json['cost']).toEqual({ at_most: '1.1' });
    const split = ['tts', 'One. Two. Three.', '--split', '--piece-length', '5', '-o', 'x.mp3', '--dry-run'];
    expect((await user.run(split)).stderr).toMatch(/^This costs at most 0\.00\d+ credits\.$/m);
    const unknown = await user.run('video c submit boat --model vendor-h3-mini --dry-run --json'.split(' '));
    expect(unknown.json['cost']).toBeUndefined();
  }, 60_000);
});

/** Returns a user of a sandbox with the given fault. */
async function userWith(fault: string): Promise<User> {
  const sandbox = await startSandbox({ stateDir: freshFolder(), paceMs: 50, faults: [fault] });
  onEnd(() => sandbox.close());
  return userHere(undefined, { MGW_SANDBOX: sandbox.url });
}

it('jobs resolve --resubmit is charged to a budget, and does not resolve the job if the budget is too small', async () => {
  const user = await userWith('submit-reply-lostx1');
  await user.run(['budget', 'set', 'clips', '20']);
  const resubmit = ['jobs', 'resolve', '@last', '--resubmit', '--budget-name', 'clips'];
  expect(await runAll(user, [c('one', '--budget-name', 'clips'), [...resubmit, '--budget', '5']])).toEqual([
    7, 12,
  ]);
  expect(await runAll(user, [c('one')])).toEqual([7]);
  expect(await runAll(user, [resubmit])).toEqual([0]);
  expect((await user.run(['budget', 'ls', '--json'])).json['budgets']).toEqual([
    { name: 'clips', limit: '20', spent: '10', reserved: '10', left: '0' },
  ]);
  expect((await user.run(['spend', '--json'])).json['total']).toMatchObject({
    spent: { charges: 1, amount: '10' },
    doubt: { charges: 1, amount: '10' },
  });
  // The first attempt may have been charged, so its reservation remains.
  expect(await runAll(user, [['jobs', 'rm', '@last', '--force']])).toEqual([0]);
  expect((await user.run(['budget', 'ls', '--json'])).json['budgets']).toEqual([
    { name: 'clips', limit: '20', spent: '20', reserved: '0', left: '0' },
  ]);
}, 60_000);

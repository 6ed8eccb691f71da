import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, beforeEach, expect, it } from 'vitest';
import { canaryKey, type CliJson, type CliResult, type User } from '../support/cli.ts';
import { fakeMp4 } from '../support/film.ts';
import { freshFolder } from '../support/fresh-folder.ts';
import { runHereAs, userHere } from '../support/one-process.ts';
import { httpServer, says, sendJson, type HttpServer } from '../support/servers.ts';
import { buildWithToy } from './toy/build.ts';

let built: Awaited<ReturnType<typeof buildWithToy>>;
let server: HttpServer;
let user: User;

beforeAll(async () => {
  built = await buildWithToy(freshFolder());
});

beforeEach(async () => {
  const listing = says({ data: [{ id: 'toy-1', protocol: 'toy-video' }, { id: 'vendor-h3-mini' }] });
  server = await httpServer((seen, response) => {
    if (seen.path === '/v1/models') listing(seen, response);
    else if (seen.method === 'POST') sendJson(response, { toy: server.create() });
    else if (seen.path.endsWith('/film')) response.end(fakeMp4());
    else sendJson(response, { phase: 'baked' });
  });
  user = userHere(server.url);
});

/** Runs the command line that contains the toy protocol. */
const mgw = (...args: string[]): Promise<CliResult> =>
  runHereAs(user, args, undefined, undefined, built.main);

const json = async (...args: string[]): Promise<CliJson> => (await mgw(...args, '--json')).json;

const boat = ['video', 'd', 'submit', 'a boat', '-m', 'toy-1', '-d', '5', '--seed', '7'];

it('a new protocol supports submitting, querying, moving to another machine, waiting and saving', async () => {
  const { job } = await json(...boat);
  expect(job).toMatchObject({ protocol: 'd', model: 'toy-1', handle: 'task_0001', state: 'queued' });
  expect(JSON.parse(server.requests.find(({ method }) => method === 'POST')?.body ?? '')).toEqual({
    engine: 'toy-1',
    words: 'a boat',
    length: 5,
    dice: { seed: 7 },
  });
  const { stdout } = await mgw('jobs', 'export');
  user = userHere(server.url);
  writeFileSync(join(user.cwd, 'jobs.jsonl'), stdout);
  expect((await mgw('jobs', 'import', join(user.cwd, 'jobs.jsonl'))).code).toBe(0);
  expect((await mgw('video', 'd', 'status', job.id)).stdout).toMatch(/^job_\w+ succeeded \(baked\)/);
  const saved = await json('video', 'd', 'fetch', job.id, '-o', '{seed}-{slug}.mp4');
  expect(saved.files).toMatchObject([{ path: join(user.cwd, '7-a-boat.mp4') }]);
  expect(server.created).toBe(1);
  // A build without the protocol can show the job, but not fetch it.
  const shown = await user.run(['jobs', 'show', job.id, '--json']);
  expect(shown.json.job).toMatchObject({ protocol: 'd', state: 'succeeded' });
  const refused = await user.run(['jobs', 'fetch', job.id, '-o', 'again.mp4', '--json']);
  expect(refused.json).toMatchObject({ exit_code: 2, error: { charged: 'no' } });
  expect(refused.json.error.message).toContain('Unknown protocol "d"');
});

it('a new protocol appears in the help, the schemas, the model list and the job list', async () => {
  const help = await mgw('video', 'd', 'submit', '--help');
  expect(help.stdout).toContain('$ mgw video d submit "a boat" -m toy-1 -d 5');
  expect((await mgw('video', '--help')).stdout).toContain('Protocol D: a toy');
  expect(await json('schema', 'video', 'd')).toMatchObject({ schema: { required: ['engine', 'words'] } });
  expect((await json('models', '--protocol', 'd'))['models']).toMatchObject([
    { id: 'toy-1', protocols: ['d'] },
  ]);
  await json(...boat);
  expect((await mgw('jobs', 'ls', '--protocol', 'd')).stdout).toContain('a boat');
});

it('a new protocol supports defaults, prices and budgets', async () => {
  expect((await mgw('config', 'set', 'defaults.video.d.toy-1.seed', '9')).code).toBe(0);
  expect((await mgw('config', 'set', 'prices.d.toy-1', 'second=0.5')).code).toBe(0);
  const short = ['video', 'd', 'submit', 'a boat', '-m', 'toy-1', '-d', '5'];
  expect(await json(...short, '--budget', '2.4')).toMatchObject({ exit_code: 12 });
  expect(server.created).toBe(0);
  expect(await json(...short, '--budget', '2.5')).toMatchObject({ exit_code: 0 });
  expect(JSON.parse(server.requests.at(-1)?.body ?? '')).toMatchObject({ dice: { seed: 9 } });
});

it('a new protocol supports batch rows, and the gallery contains the values needed to remake a video', async () => {
  writeFileSync(join(user.cwd, 'clips.csv'), 'id,protocol,model,prompt,duration\none,d,toy-1,a boat,5\n');
  const output = join(user.cwd, '{id}.{ext}');
  expect((await mgw('batch', 'run', 'clips.csv', '-o', output)).code).toBe(0);
  expect(existsSync(join(user.cwd, 'one.mp4'))).toBe(true);
  expect((await mgw('jobs', 'gallery', '-o', 'page')).code).toBe(0);
  const page = readFileSync(join(user.cwd, 'page/index.html'), 'utf8');
  expect(page).toContain('"protocol":"d","model":"toy-1","prompt":"a boat","duration":"5"');
});

it('a new protocol is available in the library', async () => {
  const client = built.library.createClient({
    baseUrl: server.url,
    apiKey: canaryKey,
    stateDir: freshFolder(),
    pollInterval: '10ms',
  });
  const order = {
    protocol: 'd',
    body: { engine: 'toy-1', words: 'a boat' },
    output: join(user.cwd, 'b.mp4'),
  };
  const { job, files } = await client.submit(order as never);
  expect([job.protocol, files.length]).toEqual(['d', 1]);
  await client.close();
});

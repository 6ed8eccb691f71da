import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { startSandbox } from '../../src/sandbox/server.ts';
import type { User } from '../support/cli.ts';
import { onEnd } from '../support/clean-ups.ts';
import { userHere } from '../support/one-process.ts';
import { freshFolder } from '../support/servers.ts';

interface Item {
  id: string;
  reason?: string;
  files: { href: string }[];
}

/** Submits a video, saves it and returns the job's id. */
async function saved(user: User, prompt: string, ...flags: string[]): Promise<string> {
  const words = ['video', 'a', 'submit', prompt, '-m', 'video-a', '-d', '4', '--json', ...flags];
  const ran = await user.run(words);
  expect(ran.code, ran.stderr).toBe(0);
  return ran.json.job?.id ?? '';
}

const hashOf = (path: string): string => createHash('sha256').update(readFileSync(path)).digest('hex');

it('a gallery with copies contains every file of a job, even if two have the same name, but no file that a later job replaced', async () => {
  const sandbox = await startSandbox({ stateDir: freshFolder(), paceMs: 1 });
  onEnd(() => sandbox.close());
  const user = userHere(undefined, { MGW_SANDBOX: sandbox.url });
  const folders = ['v1', 'v2'];
  for (const folder of folders) mkdirSync(join(user.cwd, folder));
  const takes = await saved(user, 'a boat', '--sample-count', '2', '-o', 'v{n}/clip.mp4');
  const boat = await saved(user, 'a boat', '-o', 'clip.mp4');
  const ship = await saved(user, 'a ship at sea', '-o', 'clip.mp4', '--force');

  // Only the built program contains the gallery page.
  const made = await user.start(['jobs', 'gallery', '--copy', '-o', 'review']).result;
  expect(made.code, made.stderr).toBe(0);
  const page = readFileSync(join(user.cwd, 'review', 'index.html'), 'utf8');
  const [, json = ''] = /id="data">([^]*?)<\/script>/.exec(page) ?? [];
  const { items } = JSON.parse(json) as { items: Item[] };
  const itemOf = (wanted: string): Item | undefined => items.find(({ id }) => id === wanted);
  const copies = itemOf(takes)?.files.map(({ href }) => hashOf(join(user.cwd, 'review', href)));
  expect(copies).toEqual(folders.map((folder) => hashOf(join(user.cwd, folder, 'clip.mp4'))));
  expect(new Set(copies).size).toBe(2);
  expect(itemOf(ship)?.files).toHaveLength(1);
  expect(itemOf(boat)).toMatchObject({
    files: [],
    reason: 'clip.mp4 has changed since it was saved.',
  });
});

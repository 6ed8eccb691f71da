import type { Command } from 'commander';
import { readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { thisHost } from '../../config/places.ts';
import { messageOf, MgwError, systemCode, usageError, localError } from '../../errors.ts';
import { makeFolder } from '../../files/make-folder.ts';
import { type Run, readPage } from '../command-tree.ts';
import { homeFolder } from '../../installation.ts';
import { single } from '../options.ts';
import type { Outcome } from '../output/outcome.ts';

interface InstallOptions {
  user?: boolean;
  dir?: string;
  force?: boolean;
}

const examples = `
Examples:
  $ mgw skill install
  $ mgw skill install --user
See mgw help agents.`;

/** `mgw skill install`: writes SKILL.md, which explains mgw to agents (design 16). */
export function registerSkill(group: Command, run: Run): void {
  const command = group
    .command('install')
    .description("write SKILL.md to the project's skills folder, .claude/skills/mgw")
    .option('--user', "write SKILL.md to the user's skills folder, ~/.claude/skills/mgw")
    .addOption(single('--dir <folder>', 'write SKILL.md to this skills folder'))
    .option('--force', 'replace a modified SKILL.md')
    .addHelpText('after', examples)
    .action(() => run(command, () => install(command.opts())));
}

async function install({ user = false, dir, force = false }: InstallOptions): Promise<Outcome> {
  if (user && dir !== undefined) throw usageError('--user cannot be combined with --dir.');
  const home = user ? homeFolder() : thisHost().cwd;
  if (home === '') throw usageError('This user has no home folder. Set HOME, or name a folder with --dir.');
  const skills = dir ?? join(home, '.claude', 'skills');
  const path = resolve(skills, 'mgw', 'SKILL.md');
  const text = await readPage('skill/SKILL.md');
  const existing = await readFile(path, 'utf8').catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT') return undefined;
    throw new MgwError('local_io', `${path} cannot be read: ${messageOf(error)}.`);
  });
  if (existing !== undefined && existing !== text && !force)
    throw new MgwError(
      'output_exists',
      `${path} exists with different contents. To replace it, use --force.`,
      {
        next: [
          'mgw',
          'skill',
          'install',
          ...(user ? ['--user'] : []),
          ...(dir ? ['--dir', dir] : []),
          '--force',
        ],
      },
    );
  try {
    await makeFolder(resolve(skills, 'mgw'), 0o777);
    if (existing !== text) await writeFile(path, text);
  } catch (error) {
    throw localError(error, path, 'no');
  }
  return { json: { files: [{ path }] }, text: path };
}

import type { Command } from 'commander';
import { withValue } from '../../../config/keys.ts';
import type { Run } from '../../action.ts';
import type { Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import { keyVariables, ownLayers } from './own-layers.ts';

/** `mgw auth logout`: takes the key out of the profile; the rest of it stays. */
export function registerLogout(command: Command, run: Run): void {
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw auth logout\n  $ mgw auth logout --profile work\n  $ mgw auth logout --json',
    )
    .action(() => run(command, removeKey));
}

async function removeKey(context: Context): Promise<Outcome> {
  const { io, progress } = context;
  const layers = await ownLayers(context);
  const { value: profile } = layers.profileName;
  const removed = layers.profile.api_key !== undefined;
  if (removed) {
    const { changeProfile } = await import('../../../config/store.ts');
    await changeProfile(io.env, profile, (before) => withValue(before, ['api_key'], undefined));
  }
  progress.note(
    removed ? `The key of profile "${profile}" is removed.` : `Profile "${profile}" holds no key.`,
  );
  const left = keyVariables.find((name) => io.env[name] !== undefined);
  if (left !== undefined) progress.note(`${left} is still set.`);
  return { json: { profile, removed } };
}

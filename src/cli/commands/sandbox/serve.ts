import { join } from 'node:path';
import type { Command } from 'commander';
import { parseDuration } from '../../../duration.ts';
import { messageOf, usageError } from '../../../errors.ts';
import type { Sandbox } from '../../../sandbox/server.ts';
import { sandboxFolder, type Context } from '../../context.ts';
import { repeatable, single } from '../../options.ts';

/** How a sandbox is to behave. */
export interface ServeOptions {
  port?: number;
  pace?: number;
  fault?: string[];
  seed?: number;
}

/** Adds the flags of a sandbox that is served. */
export function addServeOptions(command: Command): void {
  command
    .addOption(single('--pace <duration>', 'how long one generation takes (default 3s)', parseDuration))
    .addOption(
      repeatable(
        '--fault <name>',
        'misbehave, such as submit-reply-lost or poll-502x3; see mgw sandbox faults',
      ),
    )
    .addOption(single('--seed <n>', 'make ids and random faults repeatable', wholeNumber));
}

/** A whole number of the command line. @throws Error saying what is allowed. */
export function wholeNumber(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new Error('Allowed: a whole number.');
  return Number(text);
}

/** Starts a sandbox over the sandbox's folder. @throws MgwError('usage') for an unknown fault. */
export async function serve(context: Context, options: ServeOptions): Promise<Sandbox> {
  const { startSandbox } = await import('../../../sandbox/server.ts');
  const { forgetFaults, parseFaults } = await import('../../../sandbox/faults.ts');
  const settings = await context.settings();
  const stateDir = gatewayFolder(sandboxFolder(settings));
  const faults = options.fault ?? [];
  try {
    parseFaults(faults);
  } catch (error) {
    throw usageError(`--fault: ${messageOf(error)}`);
  }
  forgetFaults(stateDir);
  const paceMs = options.pace ?? settings.sandboxPaceMs.value;
  return startSandbox({ stateDir, port: options.port, paceMs, faults, seed: options.seed });
}

/** Where the sandbox gateway keeps its tasks and its bill. */
export function gatewayFolder(sandbox: string): string {
  return join(sandbox, 'gateway');
}

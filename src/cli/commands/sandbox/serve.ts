import { randomInt } from 'node:crypto';
import { join } from 'node:path';
import type { Command } from 'commander';
import { parseDuration } from '../../../duration.ts';
import type { Sandbox } from '../../../sandbox/server.ts';
import type { Context } from '../../context.ts';
import { repeatable, single, wholeNumber } from '../../options.ts';

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
    .addOption(single('--seed <n>', 'make ids and the faults of chaos repeatable', wholeNumber(0)));
}

/** Starts a sandbox over a state directory. @throws MgwError('usage') for an unknown fault or a port in use. */
export async function serve(context: Context, stateDir: string, options: ServeOptions): Promise<Sandbox> {
  const { startSandbox } = await import('../../open-sandbox.ts');
  const { forgetFaults } = await import('../../../sandbox/faults.ts');
  const settings = await context.settings();
  const faults = options.fault ?? [];
  const isChaos = faults.some((fault) => /(^|[\s,])chaos/.test(fault));
  const seed = options.seed ?? (isChaos ? randomInt(1e9) : undefined);
  const paceMs = options.pace ?? settings.sandboxPaceMs.value;
  const sandbox = await startSandbox({ stateDir, port: options.port, paceMs, faults, seed });
  forgetFaults(stateDir);
  if (seed !== options.seed) context.progress.note(`--seed ${seed ?? ''} repeats this chaos.`);
  return sandbox;
}

/** Where the sandbox gateway keeps its tasks and its bill. */
export function gatewayFolder(sandbox: string): string {
  return join(sandbox, 'gateway');
}

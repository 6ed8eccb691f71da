import { fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import { LocalPace, type Pace, type PaceOptions } from '../../../batch/pace.ts';
import type { RunOptions } from '../../../batch/run.ts';
import type { Context } from '../../context.ts';

/** The pace of a batch: that of all machines where the ledger is theirs. @throws MgwError('unreachable'). */
export async function paceOf(
  context: Context,
  batch: string,
  given: Omit<PaceOptions, 'intervalMs' | 'clock'>,
): Promise<Pace> {
  const { pollIntervalMs: intervalMs } = await context.gateway();
  const options = { ...given, intervalMs, clock: context.clock };
  const fleet = fleetStateOf(await context.ledger());
  if (fleet === undefined) return new LocalPace(options);
  const { SharedPace } = await import('../../../batch/fleet/shared-pace.ts');
  const note = (text: string): void => context.progress.note(text);
  return SharedPace.open({ ...options, batch, fleet, note });
}

/** How rows are carried out, by the settings. */
export async function rowOptionsOf(
  context: Context,
  { force, sidecar }: Pick<RunOptions, 'force' | 'sidecar'>,
): Promise<Omit<RunOptions, 'pace' | 'retake'>> {
  const { timeoutMs } = await context.settings();
  return { force, sidecar, timeoutMs: timeoutMs.value };
}

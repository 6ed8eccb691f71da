import type { Plan } from './plan.ts';
import { play, type Played } from './play.ts';
import type { Threads } from './threads.ts';

/** Removes commands and incidents from a plan while the plan still breaks the same promise. */
export async function shrink(
  plan: Plan,
  violations: readonly string[],
  threads: Threads,
): Promise<{ plan: Plan; played: Played }> {
  const kind = kindOf(violations);
  let found = { plan, played: { violations: [...violations], log: [] } as Played };
  const tries = async (shorter: Plan): Promise<boolean> => {
    const played = await play(shorter, threads);
    const isSame = kindOf(played.violations) === kind;
    if (isSame) found = { plan: shorter, played };
    return isSame;
  };
  await tries(plan);
  for (let size = plan.incidents.length; size >= 1; size = Math.floor(size / 2)) {
    for (let at = 0; at < found.plan.incidents.length;) {
      const incidents = found.plan.incidents.filter((_, index) => index < at || index >= at + size);
      if (!(await tries({ ...found.plan, incidents }))) at += size;
    }
  }
  for (let at = found.plan.commands.length - 1; at >= 0 && found.plan.commands.length > 1; at -= 1)
    await tries({ ...found.plan, commands: found.plan.commands.filter((_, index) => index !== at) });
  return found;
}

// Returns the description of the first broken promise without numbers and names.
function kindOf([first = '']: readonly string[]): string {
  return first.split(':')[0]?.replace(/job_\w+|\d+|\/\S+/g, '') ?? '';
}

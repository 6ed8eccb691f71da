import type { Threads } from './machine.ts';
import type { Plan } from './plan.ts';
import { play, type Played } from './play.ts';

/** Leaves commands and incidents out of a plan as long as it still breaks the same promise. */
export function shrink(
  plan: Plan,
  violations: readonly string[],
  threads: Threads,
): { plan: Plan; played: Played } {
  const kind = kindOf(violations);
  let found = { plan, played: { violations: [...violations], log: [] } as Played };
  const tries = (shorter: Plan): boolean => {
    const played = play(shorter, threads);
    const isSame = kindOf(played.violations) === kind;
    if (isSame) found = { plan: shorter, played };
    return isSame;
  };
  tries(plan);
  for (let size = plan.incidents.length; size >= 1; size = Math.floor(size / 2)) {
    for (let at = 0; at < found.plan.incidents.length;) {
      const incidents = found.plan.incidents.filter((_, index) => index < at || index >= at + size);
      if (!tries({ ...found.plan, incidents })) at += size;
    }
  }
  for (let at = found.plan.commands.length - 1; at >= 0 && found.plan.commands.length > 1; at -= 1)
    tries({ ...found.plan, commands: found.plan.commands.filter((_, index) => index !== at) });
  return found;
}

// What is wrong, whatever its numbers and names.
function kindOf([first = '']: readonly string[]): string {
  return first.split(':')[0]?.replace(/job_\w+|\d+|\/\S+/g, '') ?? '';
}

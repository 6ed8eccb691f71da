import type { Deadline } from '../clock.ts';
import type { Exchange } from '../exchange.ts';
import type { Goal } from '../job.ts';
import type { JsonObject } from '../json.ts';
import type { Protocol } from '../protocols/protocol.ts';
import type { Order } from './order.ts';
import type { Target } from './target.ts';

/** A submission that may be sent: as it goes out, and as it was asked for. */
export interface VideoSubmission {
  body: JsonObject;
  asked: JsonObject;
  exchange: Exchange;
}

/** What is wanted of a video that is submitted. */
export interface WantedVideo {
  goal: Goal;
  deadline: Deadline;
  /** Names the job for ever. */
  key?: string | undefined;
  /** A deliberate second take. */
  fresh: boolean;
  /** Where the result goes; nothing is saved where this is absent. */
  target?: Target | undefined;
  /** Replaces what stands there. */
  force: boolean;
  /** Tells next to each file where it came from. */
  sidecar: boolean;
}

/** The order of a video. Before anything is paid, it makes sure that the result can be saved. */
export function videoOrder(
  protocol: Protocol,
  { body, asked, exchange }: VideoSubmission,
  wanted: WantedVideo,
): Order {
  const { goal, deadline, key, fresh, target, force, sidecar } = wanted;
  return {
    protocol: protocol.name,
    model: protocol.modelOf(body),
    body,
    asked,
    exchange,
    auth: protocol.auth,
    read: (reply) => protocol.readSubmission(reply, body),
    key,
    fresh,
    goal,
    deadline,
    beforeSending: async () => {
      if (target === undefined) return;
      const [{ checkTargetFree }, { checkSidecarsFree }] = await Promise.all([
        import('./fetch.ts'),
        import('./sidecar.ts'),
      ]);
      const count = protocol.countOf?.(body) ?? 1;
      checkTargetFree(target, count, force);
      if (sidecar) await checkSidecarsFree(target, count, force);
    },
  };
}

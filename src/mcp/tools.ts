import type { Session } from '../flows/session.ts';
import type { Authority } from './authority.ts';
import type { Calls } from './calls.ts';
import type { Confirmation } from './confirmation.ts';
import type { Root } from './root.ts';

/** What the tools of one server work with. */
export interface Tools {
  session: Session;
  calls: Calls;
  root: Root;
  authority: Authority;
  /** Absent if no payment needs a person. */
  confirmation: Confirmation | undefined;
}

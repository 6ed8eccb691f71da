import { lstatSync, statSync, type Stats } from 'node:fs';

/** The user id of this process; undefined if the system has none. */
type User = number | undefined;

const thisUser = (): User => process.geteuid?.();

/**
 * Why this user cannot rely on a file or folder, in words that follow "it"; undefined if it is safe. Files of root are
 * trusted. Files of other users are not, not even by root: they could redirect the key, as git would run another user's
 * hooks.
 */
export function ownerFault({ uid }: Pick<Stats, 'uid'>, user: User = thisUser()): string | undefined {
  if (user === undefined || uid === user || uid === 0) return undefined;
  return `belongs to user ${uid}, and mgw runs as user ${user}`;
}

/** {@link ownerFault} of a link at a path; undefined if there is none. */
export function linkFault(path: string, user: User = thisUser()): string | undefined {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  const fault = stat?.isSymbolicLink() && ownerFault(stat, user);
  return fault ? `is a link that ${fault}` : undefined;
}

/**
 * Why this user cannot store records in an existing folder, in words that follow "it": another user owns it or a link
 * in its place, or every user may write to it.
 * @throws the system's error if it cannot be examined
 */
export function folderFault(path: string, user: User = thisUser()): string | undefined {
  const stat = statSync(path);
  const mode = (stat.mode & 0o7777).toString(8).padStart(4, '0');
  const isOpen = user !== undefined && (stat.mode & 0o002) !== 0;
  return (
    linkFault(path, user) ??
    ownerFault(stat, user) ??
    (isOpen ? `may be written by every user (mode ${mode})` : undefined)
  );
}

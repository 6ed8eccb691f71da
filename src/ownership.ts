import { lstatSync, statSync, type Stats } from 'node:fs';

/** The user as whom this process reads and writes files; undefined if the system has no such numbers. */
type User = number | undefined;

const thisUser = (): User => process.geteuid?.();

/**
 * Why a file or folder is not this user's to rely on, in words that follow "it"; undefined if it is. What root made
 * is trusted; what another user made is not, not even by root: it could send the key elsewhere, as git
 * would run another user's hooks.
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
 * Why a folder that is there is not this user's to keep records in, in words that follow "it": another user made it,
 * or a link in its place, or every user may write in it. @throws the system's error if it cannot be looked at.
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

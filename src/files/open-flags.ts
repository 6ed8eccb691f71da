import { constants } from 'node:fs';

/** Flags for opening a plain file: a link is not followed, and a FIFO not waited for. Windows has neither of them. */
export const plainFile = (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);

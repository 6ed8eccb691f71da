import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { canonicalJson, type JsonObject } from '../json.ts';
import { mp3Frames } from './mp3.ts';
import { oggJoiner } from './ogg.ts';

/** Gives the bytes of the next piece, in order, as they stand in the joined output. */
export type Joiner = (piece: Uint8Array, isLast: boolean) => Uint8Array;

/** How the pieces of one output are joined, by their format; undefined where that is not known. */
export function joinerFor(wireFormat: string): Joiner | undefined {
  if (wireFormat === 'mp3') return mp3Frames;
  if (wireFormat === 'ogg_opus') return oggJoiner();
  return wireFormat === 'pcm' ? (piece) => piece : undefined;
}

/** Where the pieces of one order are joined, in their folder: a name that no other order has. */
export function joinedPart(folder: string, bodies: readonly JsonObject[]): string {
  return join(folder, `joined-${hashOfPieces(bodies).slice(0, 16)}.part`);
}

/** What sets one text's pieces apart from another's. */
export function hashOfPieces(bodies: readonly JsonObject[]): string {
  return createHash('sha256')
    .update(canonicalJson([...bodies]))
    .digest('hex');
}

import type { KeyPath } from '../config/keys.ts';
import { messageOf, usageError } from '../errors.ts';
import type { ProtocolName } from '../job.ts';
import { longName } from '../protocols/compose.ts';
import type { Flag } from '../protocols/protocol.ts';
import { protocols } from '../protocols/registry.ts';

/**
 * Checks a default of the config (`defaults.video.a.MODEL.FLAG`) as the flag itself would be checked.
 * @throws MgwError('usage') naming the flags there are, or what the flag allows.
 */
export function checkDefault(path: KeyPath, words: readonly string[]): void {
  const [, , protocol, , name = ''] = path;
  const { flags } = protocols[protocol as ProtocolName];
  const usable = flags.filter((flag) => flag.kind !== 'file' && longName(flag) !== 'model');
  const flag = usable.find((one) => longName(one) === name);
  if (flag === undefined)
    throw usageError(
      `Protocol ${(protocol ?? '').toUpperCase()} has no default "${name}". There are: ${usable.map(longName).join(', ')}.`,
    );
  if (flag.kind !== 'list' && words.length !== 1) throw usageError(`${path.join('.')} takes one value.`);
  for (const word of words) checkWord(flag, path, word);
}

function checkWord(flag: Flag, path: KeyPath, word: string): void {
  try {
    if (flag.kind === 'switch' && word !== 'true' && word !== 'false') throw new Error('true, false');
    flag.parse?.(flag.kind === 'switch' ? word === 'true' : word);
  } catch (error) {
    throw usageError(`${path.join('.')} ${word}: allowed is ${messageOf(error)}.`);
  }
}

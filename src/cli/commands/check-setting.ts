import { parsePrice } from '../../budget/prices.ts';
import type { KeyPath } from '../../config/keys.ts';
import { messageOf, usageError } from '../../errors.ts';
import { pricedBy } from '../../flows/prices.ts';
import { compose, longName } from '../../protocols/compose.ts';
import { protocolNamed } from '../../protocols/registry.ts';
import type { Flag } from '../../protocols/protocol.ts';
import { violationMessage } from '../../protocols/violations.ts';

/**
 * Checks a default of the config (`defaults.video.a.MODEL.FLAG`) as the flag itself would be checked.
 * @throws MgwError('usage') naming the existing flags, or the allowed values.
 */
export async function checkDefault(path: KeyPath, words: readonly string[]): Promise<void> {
  const [, , protocolName = '', model = '', name = ''] = path;
  const protocol = protocolNamed(protocolName);
  const usable = protocol.flags.filter((flag) => flag.kind !== 'file' && longName(flag) !== 'model');
  const flag = usable.find((one) => longName(one) === name);
  if (flag === undefined)
    throw usageError(
      `Protocol ${protocolName.toUpperCase()} has no default "${name}". There are: ${usable.map(longName).join(', ')}.`,
    );
  if (flag.kind !== 'list' && words.length !== 1) throw usageError(`${path.join('.')} takes one value.`);
  for (const word of words) checkWord(flag, path, word);
  const given = flag.kind === 'list' ? [...words] : (words[0] ?? '');
  const value = flag.kind === 'switch' ? given === 'true' : given;
  const body = protocol.normalise(compose(protocol, { flags: { model, [name]: value } }));
  const violations = (await protocol.checks()).check(body);
  const own = violations.filter((violation) => violation.flag === `--${name}` && violation.value !== '');
  if (own.length > 0) throw usageError(violationMessage(own, model));
}

function checkWord(flag: Flag, path: KeyPath, word: string): void {
  try {
    if (flag.kind === 'switch' && word !== 'true' && word !== 'false') throw new Error('true, false');
    flag.parse?.(flag.kind === 'switch' ? word === 'true' : word);
  } catch (error) {
    throw usageError(`${path.join('.')} ${word}: must be ${messageOf(error)}.`);
  }
}

/** Checks a price of the config (`prices.c.MODEL`). @throws MgwError('usage') saying what is allowed. */
export function checkPrice(path: KeyPath, words: readonly string[]): void {
  const { flags, units } = pricedBy(path[1] ?? '');
  try {
    parsePrice(words.join('; '), flags, units);
  } catch (error) {
    throw usageError(`${path.join('.')}: ${messageOf(error)}.`);
  }
}

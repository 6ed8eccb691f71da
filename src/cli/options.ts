import { InvalidArgumentError, Option } from 'commander';
import { messageOf } from '../errors.ts';

/** An option that takes one value; given twice it is refused, since one of the two would be ignored. */
export function single(flags: string, description: string, parse?: (text: string) => unknown): Option {
  return new Option(flags, description).argParser((value: string, before: unknown) => {
    if (before !== undefined) throw new InvalidArgumentError('It was given twice.');
    if (parse === undefined) return value;
    try {
      return parse(value);
    } catch (error) {
      throw new InvalidArgumentError(messageOf(error));
    }
  });
}

/** An option that may be repeated; its values are collected. */
export function repeatable(flags: string, description: string): Option {
  return new Option(flags.replace('...', ''), `${description} (repeatable)`).argParser(
    (value: string, before: string[] | undefined) => [...(before ?? []), value],
  );
}

import { usageError } from '../../../errors.ts';
import type { JsonObject } from '../../../json.ts';
import { applySets } from '../../../protocols/compose.ts';
import { optionObject, optionText } from '../../body-option.ts';
import type { Context } from '../../context.ts';

/** The options of `mgw responses`. */
export interface ResponsesOptions {
  model?: string;
  stream?: boolean;
  instructions?: string;
  file?: string;
  body?: string;
  set?: string[];
  dryRun?: boolean;
}

/**
 * The body from input, flags, `--body` and `--set`.
 * @throws MgwError('usage') naming what is wrong or missing.
 */
export async function responsesBody(
  context: Context,
  input: string | undefined,
  options: ResponsesOptions,
): Promise<JsonObject> {
  const { model, instructions, stream } = options;
  const given = await inputOf(context, input, options);
  const base =
    options.body === undefined
      ? {}
      : optionObject(await optionText(context, options.body, '--body'), '--body');
  const body: JsonObject = {
    ...base,
    ...(model !== undefined && { model }),
    ...(given !== undefined && { input: given }),
    ...(instructions !== undefined && { instructions }),
    ...(stream && { stream: true }),
  };
  applySets(body, options.set ?? []);
  if (typeof body['model'] !== 'string' || body['model'].trim() === '')
    throw usageError('Which model? Give --model NAME; mgw models lists those of the key.');
  if (body['input'] === undefined || body['input'] === '')
    throw usageError('What to ask? Give INPUT, --file FILE, or - to read it from standard input.');
  return body;
}

async function inputOf(
  context: Context,
  input: string | undefined,
  { file, body }: ResponsesOptions,
): Promise<string | undefined> {
  if (input !== undefined && file !== undefined) throw usageError('Give INPUT or --file, not both.');
  const source = file === undefined ? input : file === '-' ? '-' : `@${file}`;
  if (source === undefined) return undefined;
  if (source === '-' && (body === '-' || body === '@-'))
    throw usageError('The input and --body cannot both be standard input.');
  if (file === undefined && source !== '-') return source;
  return (await optionText(context, source, '--file')).replace(/^\ufeff/, '').replace(/\r?\n$/, '');
}

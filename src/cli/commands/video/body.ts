import { usageError } from '../../../errors.ts';
import type { JsonObject } from '../../../json.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import { composeVideo, type Listing, type SubmissionBody } from '../../../flows/video-body.ts';
import { optionObject, optionText } from '../../body-option.ts';
import type { Context } from '../../context.ts';
import { readStdin } from '../../stdin.ts';
import { givenFlags } from './flags.ts';
import type { SubmitOptions } from './submit-options.ts';

/**
 * The body of a submission from prompt, flags, `--body`, `--set` and the configured defaults, checked.
 * @throws MgwError('usage') naming every flag that is wrong, before anything is sent.
 */
export async function submissionBody(
  context: Context,
  protocol: Protocol,
  prompt: string | undefined,
  options: SubmitOptions,
  listing?: Listing,
): Promise<SubmissionBody> {
  const flags = await givenFlags(protocol, { ...options });
  if (prompt !== undefined && flags['prompt'] !== undefined)
    throw usageError('Give PROMPT or --prompt, not both.');
  if (prompt === '-' && options.body === '@-')
    throw usageError('PROMPT and --body cannot both be standard input.');
  if (prompt !== undefined) flags['prompt'] = prompt === '-' ? await promptFromStdin(context) : prompt;
  const { set, check, dryRun } = options;
  const parts = { body: await givenBody(context, options.body), flags, set, check, dryRun };
  return composeVideo(context, protocol, parts, listing);
}

async function promptFromStdin(context: Context): Promise<string> {
  const text = (await readStdin(context.io)).replace(/\r?\n$/, '');
  if (text === '') throw usageError('PROMPT -: standard input is empty.');
  return text;
}

async function givenBody(
  context: Context,
  source: string | JsonObject | undefined,
): Promise<JsonObject | undefined> {
  if (typeof source !== 'string') return source;
  return optionObject(await optionText(context, source, '--body'), '--body');
}

import type { Option } from 'commander';
import { oneListing } from '../../../flows/listing.ts';
import { protocolOfModel } from '../../../flows/model-protocol.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import type { Context } from '../../context.ts';
import { single } from '../../options.ts';

/** `--model` of the commands that take REFs: it tells the protocol of a handle that the ledger has never seen. */
export function handleModelOption(): Option {
  return single('-m, --model <name>', 'the model of handles that were submitted without mgw');
}

/** Returns the protocol of `--model`, if it is given. @throws MgwError('usage') with the `protocols` to choose from. */
export async function handleProtocol(
  context: Context,
  { model }: { model?: string },
): Promise<Protocol | undefined> {
  if (model === undefined) return undefined;
  await context.deadline();
  return protocolOfModel(context, model, oneListing(context));
}

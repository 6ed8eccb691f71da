import type { Command } from 'commander';
import { MgwError } from '../../errors.ts';
import { nearestName } from '../../nearest.ts';
import { protocolNames } from '../../protocols/named.ts';
import type { Model } from '../../protocols/model.ts';
import type { Context } from '../context.ts';
import { oneOf, single } from '../options.ts';
import { addRetriesOption, requestTimeoutOption, timeoutOption } from '../wait-options.ts';
import type { Outcome } from '../output/outcome.ts';
import { table } from '../output/table.ts';
import type { Run } from '../command-tree.ts';
import { columnsOf } from '../io.ts';

interface ModelsOptions {
  protocol?: string;
}

/** `mgw models [ID] [--protocol NAME]`: the models that the key may use (specification 2.7). */
export function registerModels(command: Command, run: Run): void {
  command
    .argument('[id]', 'show this model alone')
    .addOption(oneOf(single('--protocol <name>', 'only models of this video protocol'), protocolNames))
    .addOption(timeoutOption())
    .addOption(requestTimeoutOption(' (default 30s)'));
  addRetriesOption(command);
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw models\n  $ mgw models --protocol c --json\n  $ mgw models vendor-h3-mini',
    )
    .action((id: string | undefined) => run(command, (context) => models(context, id, command.opts())));
}

async function models(context: Context, id: string | undefined, options: ModelsOptions): Promise<Outcome> {
  const { fetchModels } = await import('../../flows/models.ts');
  await context.deadline();
  const all = await fetchModels(context);
  const named = id === undefined ? all : all.filter((model) => model.id === id);
  if (id !== undefined && named.length === 0) throw noSuchModel(id, all);
  const shown = named
    .filter(
      ({ protocols }) =>
        options.protocol === undefined || protocols.some((name) => name === options.protocol),
    )
    .sort((one, other) => (one.id < other.id ? -1 : 1));
  if (shown.length === 0) context.progress.note(none(options.protocol, named.length));
  return {
    json: { models: shown.map(view) },
    text: shown.length === 0 ? '' : text(shown, columnsOf(context.io.stdout)),
  };
}

// A listing without marks is no proof that the protocol is not served.
function none(protocol: string | undefined, others: number): string {
  if (protocol === undefined || others === 0) return 'No models.';
  return `No model is marked for Protocol ${protocol.toUpperCase()}; without --protocol there are ${others}.`;
}

function noSuchModel(id: string, all: readonly Model[]): MgwError {
  const ids = all.map((model) => model.id);
  const meant = nearestName(id, ids);
  const near = ids.filter((other) => other.includes(id) || id.includes(other));
  const hint = near.length > 0 ? ` Near to it: ${near.slice(0, 5).join(', ')}.` : '';
  const text = `The key has no model ${id}.${meant === undefined ? hint : ` Did you mean ${meant}?`}`;
  return new MgwError('not_found', text, { next: ['mgw', 'models'] });
}

function view(model: Model): Record<string, unknown> {
  const { raw, ...known } = model;
  return { ...raw, ...known };
}

function text(shown: readonly Model[], width: number | undefined): string {
  const rows = shown.map((model) => [
    model.id,
    model.protocols.join(',') || '-',
    model.model_versions.join(', ') || '-',
    model.endpoints.join(', ') || '-',
  ]);
  return table(['id', 'protocol', 'versions', 'endpoints'], rows, width);
}

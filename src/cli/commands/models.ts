import { counted } from '../../printable.ts';
import type { Command } from 'commander';
import { compare, type Decimal, parseDecimal } from '../../decimal.ts';
import { MgwError } from '../../errors.ts';
import type { ModelList } from '../../flows/models.ts';
import { currencyOf, type ModelPrice, pricesOfModel } from '../../flows/prices.ts';
import { nearestName } from '../../nearest.ts';
import { ratioOf, shortSides } from '../../protocols/requested-value.ts';
import { protocolNames } from '../../protocols/registry.ts';
import type { Model } from '../../exchange.ts';
import type { Context } from '../context.ts';
import { oneOf, single } from '../options.ts';
import { addCallOptions } from '../wait-options.ts';
import type { Outcome } from '../output/outcome.ts';
import { type Column, fittedTable } from '../output/table.ts';
import type { Run } from '../command-tree.ts';
import { columnsOf } from '../io.ts';

interface ModelsOptions {
  protocol?: string;
  cost?: Clip;
}

/** The clip for comparing prices: its parameters by long flag name. */
type Clip = Readonly<Record<string, string>>;

/** `mgw models [ID] [--protocol NAME] [--cost CLIP]`: lists the models that the key can use (specification 2.7). */
export function registerModels(command: Command, run: Run): void {
  command
    .argument('[id]', 'show only this model')
    .addOption(oneOf(single('--protocol <name>', 'only models of this video protocol'), protocolNames))
    .addOption(single('--cost <clip>', 'sort by the price of a clip such as "5s 720p 16:9"', clipOf));
  addCallOptions(command, '30s');
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw models\n  $ mgw models --protocol c --json\n  $ mgw models --cost "5s 720p"\n  $ mgw models vendor-h3-mini',
    )
    .action((id: string | undefined) => run(command, (context) => models(context, id, command.opts())));
}

async function models(context: Context, id: string | undefined, options: ModelsOptions): Promise<Outcome> {
  const { fetchModels } = await import('../../flows/models.ts');
  await context.deadline();
  const settings = await context.settings();
  const all = await fetchModels(context);
  const selected = id === undefined ? all : all.filter((model) => model.id === id);
  if (id !== undefined && selected.length === 0) throw noSuchModel(id, all);
  const listed = selected
    .filter(
      ({ protocols }) =>
        options.protocol === undefined || protocols.some((name) => name === options.protocol),
    )
    .filter(({ protocols }) => options.cost === undefined || protocols.length > 0)
    .map((model): PricedModel => ({ ...model, prices: pricesOfModel(model, settings, options.cost) }))
    .sort(options.cost === undefined ? byId : byCost);
  if (listed.length === 0) context.progress.note(noModelsText(options.protocol, selected.length));
  else if (options.cost !== undefined && listed.every(({ prices }) => prices.length === 0))
    context.progress.note(
      'No price is set for these models. To set one: mgw config set prices.PROTOCOL.MODEL second=AMOUNT',
    );
  return {
    json: { models: listed.map(view) },
    text:
      listed.length === 0
        ? ''
        : tableText(listed, options.cost !== undefined, currencyOf(settings), columnsOf(context.io.stdout)),
  };
}

// A list without protocol marks does not prove that the protocol is unsupported.
function noModelsText(protocol: string | undefined, others: number): string {
  if (protocol === undefined || others === 0) return 'No models.';
  return `No model is marked for Protocol ${protocol.toUpperCase()}. The list without --protocol contains ${counted(others, 'model')}.`;
}

function noSuchModel(id: string, all: ModelList): MgwError {
  if (all.isIncomplete)
    return new MgwError(
      'bad_reply',
      `The part of the model list that could be fetched does not contain ${id}.`,
      {
        next: ['mgw', 'models', id],
      },
    );
  const ids = all.map((model) => model.id);
  const suggestion = nearestName(id, ids);
  const near = ids.filter((other) => other.includes(id) || id.includes(other));
  const hint = near.length > 0 ? ` Similar: ${near.slice(0, 5).join(', ')}.` : '';
  const text = `The key cannot use a model named ${id}.${suggestion === undefined ? hint : ` Did you mean ${suggestion}?`}`;
  return new MgwError('not_found', text, { next: ['mgw', 'models'] });
}

type PricedModel = Model & { prices: ModelPrice[] };

function clipOf(text: string): Clip {
  const rule =
    'a length in whole seconds, a resolution and a ratio, each at most once, such as "5s 720p 16:9"';
  const entries = text.split(/[\s,]+/).map((word): [string, string] => {
    const seconds = /^([1-9]\d{0,4})s$/.exec(word)?.[1];
    if (seconds !== undefined) return ['duration', seconds];
    if (shortSides(word) !== undefined) return ['resolution', word];
    if (ratioOf(word) !== undefined) return ['aspect-ratio', word];
    throw new Error(rule);
  });
  const clip = Object.fromEntries(entries);
  if (Object.keys(clip).length < entries.length) throw new Error(rule);
  return clip;
}

function byId(one: Model, other: Model): number {
  return one.id < other.id ? -1 : 1;
}

// Compares models by cost. Models with an unknown cost come last.
function byCost(one: PricedModel, other: PricedModel): number {
  const [first, second] = [lowestCost(one), lowestCost(other)];
  if (first === undefined || second === undefined)
    return first === second ? byId(one, other) : first === undefined ? 1 : -1;
  return compare(first, second) || byId(one, other);
}

function lowestCost({ prices }: PricedModel): Decimal | undefined {
  const costs = prices.flatMap(({ cost }) => (cost === undefined ? [] : [parseDecimal(cost)]));
  return costs.sort(compare)[0];
}

function view(model: PricedModel): Record<string, unknown> {
  const { raw, ...known } = model;
  return { ...raw, ...known };
}

function tableText(
  shown: readonly PricedModel[],
  isCost: boolean,
  currency: string,
  width: number | undefined,
): string {
  const isPriced = shown.some(({ prices }) => prices.length > 0);
  const columns: Column<PricedModel>[] = [
    { head: 'id', cell: ({ id }) => id },
    { head: 'protocol', cell: ({ protocols }) => protocols.join(',') },
    { head: 'versions', cell: ({ model_versions: versions }) => versions.join(', '), rank: 1 },
    {
      head: isCost ? `${currency} at most` : `price (${currency})`,
      cell: ({ prices }) => prices.map(priceText).join(', '),
    },
    { head: 'endpoints', cell: ({ endpoints }) => endpoints.join(', '), rank: 2 },
  ];
  return fittedTable(isPriced ? columns : columns.toSpliced(3, 1), shown, width);
}

// Returns the amounts of a price's first rate. `mgw models --json` and `mgw config get` show the whole price.
function shortPrice(price: string): string {
  const [rate = ''] = price.split(';');
  const amounts = rate.match(/\b(second|video|10k_[a-z_]+)=[\d.]+/g) ?? [];
  return amounts.join(' ') + (price === amounts.join(' ') ? '' : ' …');
}

// Shows a price for each protocol if several protocols serve the model, because their prices may differ.
function priceText({ protocol, price, cost }: ModelPrice, _: number, all: readonly ModelPrice[]): string {
  const text = cost ?? shortPrice(price);
  return all.length > 1 ? `${protocol}: ${text}` : text;
}

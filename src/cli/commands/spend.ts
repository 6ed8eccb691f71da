import { type Command, Option } from 'commander';
import { type SpendGroup, spendGroups, type Sum, type Sums } from '../../budget/spend.ts';
import type { Run } from '../command-tree.ts';
import type { Context } from '../context.ts';
import { withLabel } from '../help/wrap.ts';
import { columnsOf, write } from '../io.ts';
import { type Globals, oneOf, sinceOption, sinceTime, single } from '../options.ts';
import { jsonDocument, type Outcome } from '../output/outcome.ts';
import { table } from '../output/table.ts';
import { formatDecimal } from '../../decimal.ts';
import { toMgwError, usageError } from '../../errors.ts';
import { type DisputedFile, disputedFiles, addUp, spendView } from '../../flows/spend.ts';
import { deliveredText } from '../../jobs/receipt.ts';
import { printableLine } from '../../printable.ts';
import { currencyOf } from '../../flows/prices.ts';

interface SpendOptions {
  by?: SpendGroup;
  since?: string;
  csv?: boolean;
  disputed?: boolean;
}

const explanation = `
  spent   accepted, at the price known at submission; speech by the gateway's own count
  failed  accepted, but the generation failed; the gateway may refund it
  doubt   may have been accepted: mgw jobs ls --state unknown

Rejected submissions are not counted. Calls of mgw responses and mgw api are not jobs, and are not counted either.
Times are in UTC.

Examples:
  $ mgw spend
  $ mgw spend --by day --since 7d
  $ mgw spend --by batch --csv > spend.csv
  $ mgw spend --disputed --since 30d`;

/** `mgw spend`: shows the cost of the ledger's jobs (design 14). */
export function registerSpend(command: Command, run: Run): void {
  command
    .addOption(oneOf(single('--by <what>', 'what to group the costs by (default model)'), spendGroups))
    .addOption(sinceOption())
    .option('--csv', 'print comma-separated values')
    .addOption(
      new Option('--disputed', 'print the evidence for videos that differ from their requests').conflicts([
        'by',
        'csv',
      ]),
    )
    .addHelpText('after', explanation)
    .action(() => run(command, (context) => spend(context, command.opts())));
}

async function spend(
  context: Context,
  { by = 'model', since, csv = false, disputed }: SpendOptions,
): Promise<Outcome> {
  if (disputed) return printDisputed(context, since);
  if (csv && context.globals.json)
    throw usageError('--csv and --json both write to standard output; choose one.');
  const start = since === undefined ? '' : sinceTime(since, context.clock.now());
  const spending = await addUp(await context.ledger(), by, start);
  const { groups: rows, total } = spending;
  if (csv) return { json: {}, text: csvOf(by, rows) };
  if (rows.length === 0) context.progress.note('Nothing was spent.');
  return {
    json: spendView(by, spending),
    text:
      rows.length === 0
        ? ''
        : textOf(by, rows, total, {
            width: columnsOf(context.io.stdout),
            currency: currencyOf(await context.settings()),
          }),
  };
}

// Prints each disputed file as soon as it is found, because a ledger may contain years of jobs.
async function printDisputed(context: Context, since: string | undefined): Promise<Outcome> {
  const { json } = context.globals;
  const start = since === undefined ? undefined : sinceTime(since, context.clock.now());
  const print = (text: string): Promise<void> => write(context.io.stdout, context.redact(text));
  const width = columnsOf(context.io.stdout) ?? Infinity;
  const currency = currencyOf(await context.settings());
  const outcome: Outcome = { json: {}, silent: true };
  let count = 0;
  if (json) await print('{\n  "disputed": [');
  try {
    for await (const each of disputedFiles(await context.ledger(), start)) {
      const separator = count === 0 ? '' : json ? ',' : '\n';
      await print(
        `${separator}${json ? elementOf(each, context.globals) : `${evidenceOf(each, width, currency)}\n`}`,
      );
      count += 1;
    }
    if (count === 0) context.progress.note('No saved video differs from its request.');
  } catch (error) {
    outcome.error = toMgwError(error);
  }
  if (json) await print(`${count === 0 ? '' : '\n  '}],${jsonDocument(outcome, context.globals).slice(1)}\n`);
  return outcome;
}

// Formats a file as an element of the list in the JSON document.
function elementOf(file: DisputedFile, globals: Globals): string {
  const document = jsonDocument({ json: { disputed: [file] } }, globals);
  return document.slice(document.indexOf('[') + 1, document.lastIndexOf('\n  ]'));
}

function evidenceOf(
  { path, mismatches, delivered, price, ...about }: DisputedFile,
  width: number,
  currency: string,
): string {
  const facts = {
    ...about,
    price: price && `${price} ${currency}`,
    file: path,
    delivered: delivered && deliveredText(delivered),
  };
  const differences = mismatches.map((each): [string, string] => [
    each.field,
    `requested ${each.asked}, delivered ${each.delivered}`,
  ]);
  return [...Object.entries(facts), ...differences]
    .flatMap(([name, value]) =>
      value === undefined ? [] : withLabel(name, 17, [printableLine(value)], width),
    )
    .join('\n');
}

function textOf(
  by: SpendGroup,
  rows: readonly [string, Sums][],
  total: Sums,
  { width, currency }: { width: number | undefined; currency: string },
): string {
  const cells = (name: string, { spent, failed, doubt }: Sums): string[] => [
    name,
    String(spent.charges),
    ...[spent, failed, doubt].map(sumText),
  ];
  const lines = rows.map(([name, sums]) => cells(name || '-', sums));
  return table(
    [by, 'charges', `spent (${currency})`, 'failed', 'doubt'],
    [...lines, cells('total', total)],
    width,
  );
}

function sumText({ known, unpriced, total }: Sum): string {
  const priced = formatDecimal(known);
  if (unpriced === 0) return total;
  return priced === '0' ? `unknown (${unpriced})` : `${priced} + unknown (${unpriced})`;
}

function csvOf(by: SpendGroup, rows: readonly [string, Sums][]): string {
  const kinds = ['spent', 'failed', 'doubt'] as const;
  const head = [by, ...kinds.flatMap((kind) => [kind, `${kind}_charges`, `${kind}_unpriced`])];
  const lines = rows.map(([name, sums]) => [
    name,
    ...kinds.flatMap((kind) => [sums[kind].total, String(sums[kind].charges), String(sums[kind].unpriced)]),
  ]);
  return [head, ...lines].map(csvLine).join('\n');
}

// Formats a record of comma-separated values (RFC 4180), without the line ending.
function csvLine(fields: readonly string[]): string {
  return fields.map(quoteField).join(',');
}

// A spreadsheet treats a cell that starts with an apostrophe as text, not as a formula.
function quoteField(field: string): string {
  const text = printableLine(field).replace(/^[=+\-@]/, "'$&");
  return /[",']/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

import type { Command } from 'commander';
import { deadlineIn } from '../../../clock.ts';
import { bearer } from '../../../exchange.ts';
import type { Run } from '../../action.ts';
import type { Context } from '../../context.ts';
import { bodyOptions, requestOptions } from '../../job-options.ts';
import { single } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import { addRetriesOption, requestTimeoutOption } from '../../wait-options.ts';
import type { ResponsesOptions } from './body.ts';

const examples = `
Examples:
  $ mgw responses "Write a haiku about the sea" -m text-1 --stream
  $ mgw responses --file question.txt -m text-1 --instructions "Answer in one word" --json
  $ mgw responses --body @request.json --set max_output_tokens=200
Not a job: it is not recorded, and never sent again once it may have been charged.`;

/** `mgw responses [INPUT|-] --model M`: one call of the Responses endpoint (specification 4.5). */
export function registerResponses(command: Command, run: Run): void {
  command
    .argument('[input]', 'what to ask; - reads it from stdin')
    .optionsGroup('Question:')
    .addOption(single('-m, --model <name>', 'the model, as mgw models lists it'))
    .option('--stream', 'print the text as it arrives')
    .addOption(single('--instructions <text>', 'how the model should answer'))
    .addOption(single('--file <file>', 'the input is in this file; - reads it from stdin'))
    .optionsGroup('Waiting:')
    .addOption(
      single('--timeout <duration>', 'how long it may take in all, such as 90s or 20m (default 30m)'),
    )
    .addOption(requestTimeoutOption(' (default 2m)'));
  addRetriesOption(command);
  for (const option of requestOptions('max_output_tokens=200', ...bodyOptions())) command.addOption(option);
  command
    .addHelpText('after', examples)
    .action((input: string | undefined) =>
      run(command, (context) => responses(context, input, command.opts())),
    );
}

async function responses(
  context: Context,
  input: string | undefined,
  options: ResponsesOptions,
): Promise<Outcome> {
  const { responsesBody } = await import('./body.ts');
  const body = await responsesBody(context, input, options);
  const settings = await context.settings();
  if (options.dryRun) {
    const [{ dryRun }, { responsesExchange }] = await Promise.all([
      import('../video/dry-run.ts'),
      import('../../../responses/wire.ts'),
    ]);
    return dryRun(responsesExchange(body), bearer, settings);
  }
  const [{ respond }, { interruptions }, { outcomeOf }, { Printer }] = await Promise.all([
    import('../../../responses/respond.ts'),
    import('../../signals.ts'),
    import('./outcome.ts'),
    import('./printer.ts'),
  ]);
  const { clock, progress } = context;
  const deps = {
    client: await context.client(),
    clock,
    signal: interruptions().soft,
    lease: async () => (await context.ledger()).lease(),
    allowances: () => context.allowances(),
    note: (text: string) => progress.note(text),
    retries: settings.retries.value,
    requestTimeoutMs: settings.requestTimeoutMs.value,
  };
  const printer = new Printer(context, options.stream === true);
  const deadline = deadlineIn(settings.timeoutMs.value, clock);
  try {
    const end = await respond(body, deps, (text) => printer.take(text), deadline);
    return outcomeOf(end, printer.text);
  } finally {
    await printer.finish();
  }
}

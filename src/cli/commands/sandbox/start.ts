import type { Command } from 'commander';
import { sandboxFolder } from '../../../flows/places.ts';
import type { Context } from '../../context.ts';
import { write } from '../../io.ts';
import { single, wholeNumber } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { addServeOptions, gatewayFolder, serve, type ServeOptions } from './serve.ts';

/** `mgw sandbox start`: serves until it is interrupted; prints what a shell has to export. */
export function registerStart(command: Command, run: Run): void {
  command.addOption(
    single('--port <n>', 'port to listen on (default: any free one)', wholeNumber(0, 65_535)),
  );
  addServeOptions(command);
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw sandbox start --port 8787\n  $ mgw sandbox start --fault submit-reply-lost\n  $ mgw sandbox start --balance 100 --per-minute 30',
    )
    .action(() => run(command, (context) => start(context, command.opts())));
}

async function start(context: Context, options: ServeOptions): Promise<Outcome> {
  const sandbox = await serve(context, gatewayFolder(sandboxFolder(await context.settings())), options);
  const variables = { MGW_BASE_URL: sandbox.url, MGW_API_KEY: sandbox.key, MGW_SANDBOX: sandbox.url };
  const lines = Object.entries(variables).map(([name, value]) => `export ${name}=${value}\n`);
  const json = { url: sandbox.url, key: sandbox.key, file_url: sandbox.fileUrl };
  await write(context.io.stdout, context.globals.json ? `${JSON.stringify(json)}\n` : lines.join(''));
  context.progress.note('The sandbox is running; Ctrl-C ends it.');
  await interrupted();
  await sandbox.close();
  return { json: {}, silent: true };
}

function interrupted(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => resolve());
  });
}

import { messageOf } from '../errors.ts';
import type { JobFile } from '../job.ts';
import type { Context } from './context.ts';
import { write } from './io.ts';
import { exitCodeOf, type Outcome } from './output/outcome.ts';

/**
 * What follows once the outcome of a command that ran jobs is printed: a workflow is told, the person is notified, the file
 * is shown. Never throws, and changes nothing of the outcome.
 */
export async function afterwards(outcome: Outcome, context: Context): Promise<void> {
  const { io, globals, progress } = context;
  const deps = {
    env: io.env,
    redact: (text: string) => context.redact(text),
    note: (text: string) => progress.note(text),
  };
  if (outcome.isRun) {
    const { tellWorkflow } = await import('./output/github.ts');
    await tellWorkflow(outcome, deps);
  }
  if (globals.notify) {
    const { notification } = await import('./output/notify.ts');
    const signal = notification(endText(outcome), io);
    if (signal !== undefined) await write(io.stderr, signal).catch(() => undefined);
  }
  const files = (outcome.json['files'] as JobFile[] | undefined) ?? [];
  if (globals.open && io.stderr.isTTY === true) await show(files, deps.note);
}

function endText({ json, ...outcome }: Outcome): string {
  const code = exitCodeOf({ json, ...outcome });
  const { id } = (json['job'] as { id?: string } | undefined) ?? {};
  return `${id ?? 'mgw'}: ${code === 0 ? 'done' : `ended with exit ${code}`}`;
}

async function show(files: readonly JobFile[], note: (text: string) => void): Promise<void> {
  const { openFile } = await import('./open-file.ts');
  const file = files.find(({ path }) => path !== '-');
  if (file === undefined) return;
  await openFile(file.path).catch((error: unknown) =>
    note(`${file.path} cannot be shown: ${messageOf(error)}`),
  );
}

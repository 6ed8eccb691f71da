import { constants } from 'node:fs';
import { lstat, open, type FileHandle } from 'node:fs/promises';
import type { Context } from './context.ts';
import { type Io, write, decodeUtf8, maxInputBytes, readStdin } from './io.ts';
import type { Deadline } from '../clock.ts';
import { messageOf, systemCode, usageError, MgwError } from '../errors.ts';
import { isObject, type Json, type JsonObject, parseBodyJson, parseJson } from '../json.ts';
import { printableLine } from '../printable.ts';
import { isUrl, tildeProblem } from '../store-url.ts';
import { createInterface } from 'node:readline/promises';

/**
 * Reads a file whose path is a flag's value, without waiting for a FIFO.
 * @throws MgwError('usage') naming the flag if the file does not exist, is not a regular file, or is over 64 MiB.
 */
export async function readInputFile(path: string, flag: string): Promise<Uint8Array> {
  const { file, size } = await openInput(path, flag);
  try {
    if (size > maxInputBytes) throw usageError(`${flag}: ${path} is larger than 64 MiB.`);
    return await file.readFile();
  } finally {
    await file.close();
  }
}

/**
 * Yields the content of a file of any size, without waiting for a FIFO.
 * @throws MgwError('usage') naming the flag if the file does not exist or is not a regular file.
 */
export async function* inputFileChunks(path: string, flag: string): AsyncGenerator<Buffer> {
  const { file } = await openInput(path, flag);
  yield* file.createReadStream() as AsyncIterable<Buffer>;
}

async function openInput(path: string, flag: string): Promise<{ file: FileHandle; size: number }> {
  checkLocalPath(path, flag);
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
    throw usageError(`${flag}: cannot read ${path}: ${explainUnreadable(error)}.`);
  });
  const stat = await file.stat();
  if (stat.isFile()) return { file, size: stat.size };
  await file.close();
  throw usageError(`${flag}: ${path} is not a regular file.`);
}

/** Refuses a URL, and a path that begins with `~`. @throws MgwError('usage') naming the flag or field. */
export function checkLocalPath(path: string, flag: string): void {
  if (isUrl(path))
    throw usageError(`${flag}: ${path} is a URL, but only a local file is accepted here. Download it first.`);
  const problem = tildeProblem(path);
  if (problem !== undefined) throw usageError(`${flag}: ${path} must be ${problem}.`);
}

function explainUnreadable(error: unknown): string {
  const reasons: Record<string, string> = {
    ENOENT: 'no such file',
    EACCES: 'permission denied',
    ENOTDIR: 'part of the path is not a folder',
    ELOOP: 'its symbolic links form a loop',
  };
  return reasons[systemCode(error) ?? ''] ?? messageOf(error);
}

/**
 * Reads the text of a file whose path is a flag's value.
 * @throws MgwError('usage') like {@link readInputFile}, or for invalid UTF-8.
 */
export async function readInputText(path: string, flag: string): Promise<string> {
  return decodeUtf8(await readInputFile(path, flag), `${flag} @${path}`);
}

/**
 * Returns text from the command line. Refuses the name of an existing file if it contains a dot or slash, or follows
 * an `@`: the user probably means the file's content, and would pay for its name.
 * @param flag the command's flag that reads a file; undefined if it has none
 * @throws MgwError('usage') with the `fileName`.
 */
export async function typedText(text: string, flag?: string): Promise<string> {
  const path = text.replace(/^@/, '');
  // A word without a dot or slash is text, even if it is the name of a file, such as the command's own output.
  if (!/^\S{1,255}$/.test(path) || !/^@|[./\\]/.test(text)) return text;
  const stat = await lstat(path).catch(() => undefined);
  if (!stat?.isFile() && !stat?.isSymbolicLink()) return text;
  const advice = 'To send the name itself as text, pass it on standard input, with - as the argument.';
  throw usageError(`${printableLine(path)} is the name of a file, not its content. ${advice}`).with({
    fileName: { text, path, ...(flag !== undefined && { flag }) },
  });
}

/** An option's text. If the text came from a file, errors do not quote it. */
export interface OptionText {
  text: string;
  isFile: boolean;
}

/**
 * Returns the text of a flag such as `--body`: the value itself, the file after an `@`, or standard input for `-` and
 * `@-`.
 * @throws MgwError('usage') naming the flag.
 */
export async function optionText(context: Context, source: string, flag: string): Promise<OptionText> {
  if (source === '-' || source === '@-')
    return { text: await readStdin(context.io, await context.deadline()), isFile: false };
  if (!source.startsWith('@')) return { text: source, isFile: false };
  return { text: await readInputText(source.slice(1), flag), isFile: true };
}

/** Parses the JSON value of a flag. @throws MgwError('usage') naming the flag. */
export function optionJson(source: OptionText, flag: string): Json {
  return parseOption(source, flag, parseJson);
}

/**
 * Parses a JSON object that will be sent to the gateway.
 * @throws MgwError('usage') naming the flag, for example if a number would lose precision.
 */
export function optionObject(source: OptionText, flag: string): JsonObject {
  const json = parseOption(source, flag, parseBodyJson);
  if (!isObject(json)) throw usageError(`${flag}: the JSON must be an object.`);
  return json;
}

/** Reads the value of `--body`; undefined without it. @throws MgwError('usage') if it is not a JSON object. */
export async function bodyOption(
  context: Context,
  source: string | undefined,
): Promise<JsonObject | undefined> {
  if (source === undefined) return undefined;
  return optionObject(await optionText(context, source, '--body'), '--body');
}

// Returns a hint if the text looks like a file name without its `@`.
function fileHint(text: string, flag: string): string {
  const isName = /^[^\s{}[\]"]{1,255}$/.test(text) && /[./\\]/.test(text);
  return isName ? `. To read the file, put an @ before its name: ${flag} @${text}` : '';
}

function parseOption({ text, isFile }: OptionText, flag: string, parse: (text: string) => Json): Json {
  try {
    return parse(text);
  } catch (error) {
    const isJson = error instanceof RangeError;
    if (!isFile)
      throw usageError(
        `${isJson ? flag : `${flag} is not JSON`}: ${messageOf(error)}${fileHint(text, flag)}`,
      );
    const reason = isJson
      ? 'a number in it would lose precision, or it is nested too deeply'
      : `it is not JSON${positionIn(text, messageOf(error))}`;
    throw usageError(`${flag}: the file cannot be used: ${reason}.`);
  }
}

// Describes the position of a JSON error; '' if V8's message does not include the position.
function positionIn(text: string, message: string): string {
  const [, position] = /at position (\d+)/.exec(message) ?? [];
  if (position === undefined) return '';
  const linesBefore = text.slice(0, Number(position)).split('\n');
  return ` (line ${linesBefore.length}, column ${(linesBefore.at(-1)?.length ?? 0) + 1})`;
}

/**
 * Returns a command's REFs. `-` reads them from standard input, separated by spaces or line breaks.
 * @param deadline the command's deadline; absent if the command has no `--timeout`
 */
export async function readRefs(refs: string[], io: Io, deadline?: Deadline): Promise<string[]> {
  let allRefs: string[] = [];
  for (const ref of refs) {
    // Does not spread the REFs as arguments, because there may be more of them than a call accepts.
    if (ref !== '-') allRefs.push(ref);
    else allRefs = allRefs.concat((await readStdin(io, deadline)).split(/\s+/).filter((word) => word !== ''));
  }
  const empty = allRefs.find((ref) => ref.trim() === '');
  if (empty !== undefined) throw usageError('A REF is empty. Use a job id, @key, @last or a handle.');
  return [...new Set(allRefs)];
}

/**
 * Reads a line from the terminal, with a prompt on stderr.
 * @throws MgwError: exit 130 on Ctrl-C or at the end of the input (Ctrl-D), `usage` if stdin is not a terminal, or if
 * the user pastes several lines.
 */
export async function readLine({ stdin, stderr }: Io, question: string): Promise<string> {
  if (stdin.isTTY !== true) throw usageError('Standard input is not a terminal.');
  const prompt = createInterface({ input: stdin, output: stderr });
  let rest = '';
  prompt.on('line', (line) => (rest += line));
  try {
    const first = await new Promise<string>((resolve, reject) => {
      prompt.once('SIGINT', () => reject(interrupted())).once('close', () => reject(interrupted()));
      prompt.question(question).then(resolve, reject);
    });
    if ((rest + prompt.line).trim() === '') return first;
    throw usageError('Several lines were pasted, but only one can be entered here.');
  } catch (error) {
    // Makes the error begin on a new line.
    await write(stderr, '\n');
    throw error;
  } finally {
    prompt.close();
  }
}

interface Terminal {
  setRawMode(on: boolean): unknown;
}

/**
 * Reads a line from the terminal without echoing it, with a prompt on stderr. Backspace and Ctrl-U edit the line.
 * @throws MgwError: exit 130 on Ctrl-C, `usage` if stdin is not a terminal.
 */
export async function readHidden(io: Io, question: string): Promise<string> {
  const { stdin } = io;
  if (stdin.isTTY !== true || !isTerminal(stdin)) throw usageError('Standard input is not a terminal.');
  await write(io.stderr, question);
  stdin.setRawMode(true);
  try {
    return await readKeys(io);
  } finally {
    stdin.setRawMode(false);
    stdin.pause();
    await write(io.stderr, '\n');
  }
}

function isTerminal(stream: unknown): stream is Terminal {
  return typeof (stream as Partial<Terminal>).setRawMode === 'function';
}

function readKeys({ stdin }: Io): Promise<string> {
  return new Promise((resolve, reject) => {
    let line = '';
    const settle = (finish: () => void): void => {
      stdin.off('data', onData).off('end', onEnd).off('error', onError);
      finish();
    };
    const onError = (error: Error): void => settle(() => reject(error));
    const onEnd = (): void => settle(() => resolve(line));
    const onData = (chunk: Buffer | string): void => {
      const typed = applyKeys(line, chunk.toString());
      line = typed.line;
      if (typed.ending === 'done') settle(() => resolve(line));
      if (typed.ending === 'interrupted') settle(() => reject(interrupted()));
    };
    stdin.on('data', onData).once('end', onEnd).once('error', onError);
    stdin.resume();
  });
}

function interrupted(): MgwError {
  return new MgwError('usage', 'Interrupted; nothing was saved.', { exit: 'interrupted' });
}

/**
 * Applies keystrokes to a line, because a terminal in raw mode does not edit it. Returns the edited line and, if a
 * keystroke ended the line, how it ended.
 */
export function applyKeys(line: string, keys: string): { line: string; ending?: 'done' | 'interrupted' } {
  let typed = line;
  // Arrow keys and bracketed paste send escape sequences, which are not part of the input.
  for (const key of keys.replace(/\x1b\[[\d;]*[ -/]*[@-~]|\x1b./g, '')) {
    if (key === '\x03') return { line: '', ending: 'interrupted' };
    if (key === '\r' || key === '\n' || key === '\x04') return { line: typed, ending: 'done' };
    if (key === '\x7f' || key === '\b') typed = typed.slice(0, -1);
    else if (key === '\x15') typed = '';
    else typed += key;
  }
  return { line: typed };
}

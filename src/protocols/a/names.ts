import { MgwError, usageError } from '../../errors.ts';
import { shownValue } from '../violations.ts';

// Longer names are no names; they would not fit into a request line. Nor may a name leave the path, or end it: a query, a fragment, a drive or host, unprintable characters.
const longest = 2048;
const unsafe = /[?#\\\s\p{Cc}\p{Cf}\p{Cs}]/u;

/** True where a model's name can be put into a path as one segment (specification 4.1). */
export function isModelName(name: string): boolean {
  return isRelativePath(name);
}

/**
 * The path that submits to a model (specification 4.1), the name percent-encoded.
 * @throws MgwError('usage') where there is no name or it cannot be put into a path.
 */
export function submissionPath(model: string | undefined): string {
  if (model === undefined) throw usageError('No model is given: --model.');
  if (!isModelName(model)) throw usageError(`${shownValue(model)} cannot be the name of a model.`);
  return `/v1beta/models/${encodeURIComponent(model)}:predictLongRunning`;
}

/**
 * Why an operation cannot be asked for by its name, in words that follow "it"; undefined where it can. The
 * specification's shape is `models/<model>/operations/<id>` (2.2); longer names that end like it are as good.
 * `model` is the one that was submitted to, where it is known: an operation of another is not this task's.
 */
export function operationFault(name: string, model?: string): string | undefined {
  if (/^[a-z][a-z\d+.-]*:/i.test(name)) return 'is an absolute address';
  if (!isRelativePath(name)) return 'is not shaped models/<model>/operations/<id>';
  const named = modelIn(name);
  const foreign =
    model !== undefined && named !== undefined && named !== model && named !== encodeURIComponent(model);
  return foreign ? `belongs to another model than ${shownValue(model)}` : undefined;
}

// What stands between the first `models/` and the last `/operations/<id>`: a model's name may have slashes.
function modelIn(name: string): string | undefined {
  const steps = name.split('/');
  const [start, end] = [steps.indexOf('models') + 1, steps.length - 2];
  const isWhole = start > 0 && end > start && steps[end] === 'operations' && steps.at(-1) !== '';
  return isWhole ? steps.slice(start, end).join('/') : undefined;
}

/**
 * The path that asks for an operation (specification 4.1): the whole name with its slashes, percent-encoded only
 * where a path cannot hold a character as it is.
 * @throws MgwError('result_unavailable') where {@link operationFault} finds something.
 */
export function operationPath(name: string, model?: string): string {
  const fault = operationFault(name, model);
  if (fault !== undefined)
    throw new MgwError(
      'result_unavailable',
      `The operation ${shownValue(name)} cannot be queried: it ${fault}.`,
      {
        charged: 'yes',
      },
    );
  return `/v1beta/${name.split('/').map(encodeSegment).join('/')}`;
}

function isRelativePath(path: string): boolean {
  const segments = path.split('/');
  return (
    path.length <= longest &&
    !unsafe.test(path) &&
    !segments.some((segment) => ['', '.', '..'].includes(segment))
  );
}

// What RFC 3986 leaves plain in a segment stays so: a gateway may compare names without decoding them.
function encodeSegment(segment: string): string {
  return encodeURIComponent(segment).replace(/%(24|26|2B|2C|3A|3B|3D|40)/g, decodeURIComponent);
}

import { exitCodes, type MgwError } from '../../errors.ts';
import { shellWord } from './human.ts';

/** An error as the annotation that a workflow shows; what goes on and can be resumed is a warning. */
export function annotation(error: MgwError): string {
  const { code, exitCode, message, next } = error;
  const goesOn: number[] = [exitCodes.pending, exitCodes.interrupted, exitCodes.terminated];
  const level = goesOn.includes(exitCode) ? 'warning' : 'error';
  const text = next === undefined ? message : `${message}\nnext: ${next.map(shellWord).join(' ')}`;
  return `::${level} title=${escapedProperty(`mgw: ${code} (exit ${exitCode})`)}::${escapedData(text)}`;
}

function escapedData(text: string): string {
  return text.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
}

function escapedProperty(text: string): string {
  return escapedData(text).replaceAll(':', '%3A').replaceAll(',', '%2C');
}
